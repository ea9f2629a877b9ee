package export

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"sort"
	"strings"

	"github.com/stageline/stageline/collector/run"
	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/correlate/diagnose"
)

// JSONSchema names the shape of the document that JSON writes. A reader must refuse another major
// version (the number after the slash); fields may be added within one.
const JSONSchema = "stageline.report/1"

// Document is the JSON report. Times are CLOCK_MONOTONIC nanoseconds (…_ns), durations microseconds
// (…_us); null is unknown.
type Document struct {
	Schema      string                      `json:"schema"`
	Meta        *run.Metadata               `json:"meta"`
	Loss        []correlate.LossEntry       `json:"loss"`
	Verdict     diagnose.Verdict            `json:"verdict"`
	Counts      correlate.Counts            `json:"counts"`
	FromNS      int64                       `json:"from_ns"`
	ToNS        int64                       `json:"to_ns"`
	Summary     diagnose.RequestSummary     `json:"requests_summary"`
	Window      *[2]int64                   `json:"load_window_ns"` // over which stages[].figures.load is taken
	Stages      []StageDocument             `json:"stages"`
	Edges       []diagnose.Connector        `json:"edges"` // data alone; connectors: by message type
	Connectors  []diagnose.Connector        `json:"connectors"`
	Uncovered   []correlate.Uncovered       `json:"uncovered_hops"`
	Channels    []correlate.Channel         `json:"channels"`
	Notes       []run.Note                  `json:"notes"`
	Definitions []Definition                `json:"definitions"`
	Activations []correlate.Activation      `json:"activations"`
	Requests    []correlate.RequestTimeline `json:"requests"`
}

// StageDocument is a stage with its figures; Rule and TGIDs are empty for a stage that only
// messages name.
type StageDocument struct {
	correlate.Stage
	Figures *diagnose.StageSummary `json:"figures"`
}

// NewDocument arranges a report for JSON. Requests that the result keeps elsewhere are not in it: JSON
// writes them.
func NewDocument(r *Report) *Document {
	res := r.Result
	return &Document{
		Schema: JSONSchema, Meta: r.Meta, Loss: orEmpty(res.Loss), Verdict: r.Verdict, Counts: res.Counts,
		FromNS: res.FromNS, ToNS: res.ToNS, Summary: r.Summary.Requests, Stages: stageDocuments(r),
		Window: r.Summary.Window, Edges: orEmpty(r.Summary.Edges), Activations: orEmpty(res.Activations),
		Connectors: orEmpty(r.Summary.Connectors), Uncovered: orEmpty(res.Uncovered), Channels: orEmpty(res.Channels),
		Notes: orEmpty(res.Notes), Definitions: definitions, Requests: orEmpty(res.Requests),
	}
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func stageDocuments(r *Report) []StageDocument {
	out := []StageDocument{}
	index := map[string]int{}
	for _, s := range r.Result.Stages {
		index[s.Name] = len(out)
		out = append(out, StageDocument{Stage: s})
	}
	for i := range r.Summary.Stages {
		f := &r.Summary.Stages[i]
		at, ok := index[f.Stage]
		if !ok {
			at = len(out)
			out = append(out, StageDocument{Stage: correlate.Stage{Name: f.Stage, TGIDs: []uint32{}}})
		}
		out[at].Figures = f
	}
	sort.SliceStable(out, func(a, b int) bool { return out[a].Name < out[b].Name })
	return out
}

// JSON writes the report as one JSON object: one line for each top-level field and for each element
// of a top-level list, so that line tools and diffs can work on it.
func JSON(w io.Writer, r *Report) error {
	b := bufio.NewWriterSize(w, 1<<16)
	head := NewDocument(r)
	head.Activations, head.Requests = nil, nil // one by one, below
	doc := reflect.ValueOf(head).Elem()
	for i := range doc.NumField() {
		open := ",\n"
		if i == 0 {
			open = "{\n"
		}
		key, _, _ := strings.Cut(doc.Type().Field(i).Tag.Get("json"), ",")
		fmt.Fprintf(b, "%s%q: ", open, key)
		if err := writeAny(b, r, doc.Field(i)); err != nil {
			return fmt.Errorf("encode %s of the report: %w", key, err)
		}
	}
	b.WriteString("\n}\n")
	if err := errors.Join(r.Result.Err(), b.Flush()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// writeAny writes a field, those that grow with the run element by element.
func writeAny(b *bufio.Writer, r *Report, v reflect.Value) error {
	switch v.Interface().(type) {
	case []correlate.Activation:
		return writeEach(b, r.Result.AllActivations())
	case []correlate.RequestTimeline:
		return writeEach(b, r.Result.All())
	}
	return writeField(b, v)
}

func writeEach[T any](b *bufio.Writer, list iter.Seq2[int, *T]) error {
	b.WriteByte('[')
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		if err := writeValue(b, reflect.ValueOf(v)); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

func writeField(b *bufio.Writer, v reflect.Value) error {
	if v.Kind() != reflect.Slice {
		return writeValue(b, v)
	}
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		if err := writeValue(b, v.Index(i)); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

func writeValue(b *bufio.Writer, v reflect.Value) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Interface()); err != nil {
		return err
	}
	_, err := b.Write(bytes.TrimSuffix(line.Bytes(), []byte("\n")))
	return err
}

// ReadDocument reads what JSON wrote.
func ReadDocument(rd io.Reader) (*Document, error) {
	d := new(Document)
	if err := json.NewDecoder(rd).Decode(d); err != nil {
		return nil, fmt.Errorf("read JSON report: %w", err)
	}
	return d, d.checkSchema()
}
