package export

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/stageline/stageline/correlate"
)

// Reader reads what JSON wrote without holding it: its requests are read one at a time.
type Reader struct {
	Head *Document // without Activations and Requests

	f        io.ReaderAt
	requests []jsonPlace
}

// jsonPlace is where a value lies in a document, with what separates it from the value before.
type jsonPlace struct {
	at int64
	n  int32
}

// RequestNames are the names of a request.
type RequestNames struct {
	ID      string            `json:"request_id"`
	Aliases []correlate.Alias `json:"aliases"`
}

// NewReader goes through a document of a size once and calls each with the names of the requests, in
// their order.
func NewReader(f io.ReaderAt, size int64, each func(i int, q *RequestNames)) (*Reader, error) {
	r := &Reader{f: f}
	d := json.NewDecoder(io.NewSectionReader(f, 0, size))
	head, err := r.fields(d, each)
	if err == nil {
		r.Head, err = headOf(head)
	}
	if err != nil {
		return nil, fmt.Errorf("read JSON report: %w", err)
	}
	if err := r.Head.checkSchema(); err != nil {
		return nil, err
	}
	return r, nil
}

// fields reads all fields but those that grow with the run, of which it notes the places.
func (r *Reader) fields(d *json.Decoder, each func(int, *RequestNames)) (map[string]json.RawMessage, error) {
	if _, err := open(d, '{'); err != nil {
		return nil, err
	}
	head := map[string]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch key {
		case "activations":
			err = elements(d, func(jsonPlace) {}, new(json.RawMessage))
		case "requests":
			q := new(RequestNames)
			err = elements(d, func(p jsonPlace) {
				each(len(r.requests), q)
				r.requests = append(r.requests, p)
				*q = RequestNames{}
			}, q)
		default:
			var v json.RawMessage
			err = d.Decode(&v)
			head[fmt.Sprint(key)] = v
		}
		if err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return head, err
}

// elements decodes those of a list into one value, one after the other.
func elements(d *json.Decoder, found func(jsonPlace), into any) error {
	some, err := open(d, '[')
	if err != nil || !some {
		return err
	}
	for d.More() {
		from := d.InputOffset()
		if err := d.Decode(into); err != nil {
			return err
		}
		n := d.InputOffset() - from
		if n > maxRequestJSON {
			return fmt.Errorf("an element of %d bytes, more than the %d that one may have", n, maxRequestJSON)
		}
		found(jsonPlace{from, int32(n)})
	}
	_, err = d.Token()
	return err
}

// maxRequestJSON bounds one request in a document.
const maxRequestJSON = 1 << 30

// open enters a list or an object; false: there is null in its place.
func open(d *json.Decoder, want json.Delim) (some bool, err error) {
	got, err := d.Token()
	if err == nil && got != nil && got != want {
		err = fmt.Errorf("%.40q at byte %d, want %q", fmt.Sprint(got), d.InputOffset(), want.String())
	}
	return got != nil, err
}

func headOf(fields map[string]json.RawMessage) (*Document, error) {
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	d := new(Document)
	return d, json.Unmarshal(b, d)
}

// Len is the number of requests.
func (r *Reader) Len() int { return len(r.requests) }

// Request reads one of the requests, by its index.
func (r *Reader) Request(i int) (*correlate.RequestTimeline, error) {
	b := make([]byte, r.requests[i].n)
	if _, err := r.f.ReadAt(b, r.requests[i].at); err != nil {
		return nil, fmt.Errorf("read request %d of the JSON report: %w", i, err)
	}
	for len(b) > 0 && b[0] != '{' { // a comma and space
		b = b[1:]
	}
	q := new(correlate.RequestTimeline)
	if err := json.Unmarshal(b, q); err != nil {
		return nil, fmt.Errorf("read request %d of the JSON report: %w", i, err)
	}
	return q, nil
}

func (d *Document) checkSchema() error {
	if d.Schema != JSONSchema {
		return fmt.Errorf("JSON report has schema %.40q, this program reads %q; write it again with `stageline report RUN --json`", d.Schema, JSONSchema)
	}
	return nil
}
