package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// A document is read one request at a time as it is read as a whole.
func TestReader(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, sample()); err != nil {
		t.Fatal(err)
	}
	whole, err := ReadDocument(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	r, err := NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()), func(i int, q *RequestNames) {
		if i != len(ids) || len(q.Aliases) != len(whole.Requests[i].Aliases) {
			t.Errorf("request %d comes at place %d with aliases %v", i, len(ids), q.Aliases)
		}
		ids = append(ids, q.ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Len() != len(whole.Requests) || r.Len() < 2 {
		t.Fatalf("%d requests, want %d and more than one", r.Len(), len(whole.Requests))
	}
	for i := range whole.Requests {
		q, err := r.Request(i)
		if err != nil || q.ID != ids[i] || !reflect.DeepEqual(*q, whole.Requests[i]) {
			t.Errorf("request %d, named %q: %v, %+v", i, ids[i], err, q)
		}
	}
	whole.Requests, whole.Activations = nil, nil
	got, err1 := json.Marshal(r.Head)
	want, err2 := json.Marshal(whole)
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(got, want) {
		t.Errorf("head: %v, got %s, want %s", err, got, want)
	}
	for _, c := range []struct{ doc, says string }{
		{strings.Replace(b.String(), JSONSchema, "stageline.report/2", 1), "write it again"},
		{b.String()[:b.Len()/2], "unexpected EOF"},
		{`{"requests": 3}`, `"3"`},
		{`[]`, "want"},
	} {
		if _, err := NewReader(strings.NewReader(c.doc), int64(len(c.doc)), func(int, *RequestNames) {}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.30q: got %v, want %q", c.doc, err, c.says)
		}
	}
}
