package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// MsgType numbers are shared with stage/stage.h and stagepy.
type MsgType uint8

const (
	MsgNone MsgType = iota
	MsgSubmit
	MsgData
	MsgAck
	MsgStream
	MsgComplete
	MsgAbort
	MsgBeat
	MsgHealth
)

var msgNames = [...]string{"", "submit", "data_ready", "data_ack", "stream", "complete", "abort", "heartbeat", "health_check"}

func (t MsgType) String() string { return msgNames[t] }

func msgTypeOf(name string) MsgType {
	for i, n := range msgNames {
		if n == name {
			return MsgType(i)
		}
	}
	return MsgNone
}

// Message is what the API exchanges with stages.
type Message struct {
	Type  MsgType
	ID    string
	From  string // stage name without replica
	Chunk int    // -1: none
	Final bool
	Data  []byte
}

var errForm = errors.New("not a message of this pipeline")

// appendStr keeps to the short forms that msgpack libraries choose.
func appendStr(b []byte, s string) []byte {
	if len(s) < 32 {
		b = append(b, 0xa0|byte(len(s)))
	} else {
		b = append(b, 0xd9, byte(len(s)))
	}
	return append(b, s...)
}

func appendBin(b, d []byte) []byte {
	b = append(b, 0xc6)
	b = binary.BigEndian.AppendUint32(b, uint32(len(d)))
	return append(b, d...)
}

// encodeSubmit frames a request for the first stage.
func encodeSubmit(f Framing, id, to string, data []byte) []byte {
	if f == FrameArray {
		body := []byte{0xdc, 0, 18}
		body = appendStr(body, id)
		body = appendStr(body, "coordinator")
		body = appendStr(body, to)
		body = append(body, 0xff, 0xc3, 0xc0, 0) // no chunk, final, no segment, size 0
		for range 11 {
			body = append(body, 0xc0)
		}
		b := appendFrame(nil, true, []byte{0})
		b = appendFrame(b, true, body)
		return appendFrame(b, false, data)
	}
	body := []byte{0x83}
	body = appendStr(appendStr(body, "type"), MsgSubmit.String())
	body = appendStr(appendStr(body, "request_id"), id)
	body = appendBin(appendStr(body, "data"), data)
	return appendFrame(nil, false, body)
}

func encodeAbort(id string) []byte {
	body := []byte{0x82}
	body = appendStr(appendStr(body, "type"), MsgAbort.String())
	body = appendStr(appendStr(body, "request_id"), id)
	return appendFrame(nil, false, body)
}

func encodeHealth() []byte {
	return appendFrame(nil, false, appendStr(appendStr([]byte{0x81}, "type"), MsgHealth.String()))
}

// mpReader reads the msgpack subset of this pipeline.
type mpReader struct{ b []byte }

func (r *mpReader) be(n int) (uint64, error) {
	if len(r.b) < n {
		return 0, errForm
	}
	var v uint64
	for _, c := range r.b[:n] {
		v = v<<8 | uint64(c)
	}
	r.b = r.b[n:]
	return v, nil
}

func (r *mpReader) bytes(n uint64, err error) (any, error) {
	if err != nil || uint64(len(r.b)) < n {
		return nil, errForm
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v, nil
}

type mpMap int

type mpArray int

// next returns nil, bool, int64, []byte (string or bin), mpMap or mpArray.
func (r *mpReader) next() (any, error) {
	t, err := r.be(1)
	if err != nil {
		return nil, err
	}
	switch {
	case t < 0x80:
		return int64(t), nil
	case t >= 0xe0:
		return int64(int8(t)), nil
	case t < 0x90:
		return mpMap(t & 15), nil
	case t < 0xa0:
		return mpArray(t & 15), nil
	case t < 0xc0:
		return r.bytes(t&31, nil)
	}
	return r.tagged(t)
}

func (r *mpReader) tagged(t uint64) (any, error) {
	switch t {
	case 0xc0:
		return nil, nil
	case 0xc2, 0xc3:
		return t == 0xc3, nil
	case 0xc4, 0xd9:
		return r.bytes(r.be(1))
	case 0xc5, 0xda:
		return r.bytes(r.be(2))
	case 0xc6, 0xdb:
		return r.bytes(r.be(4))
	case 0xcc, 0xcd, 0xce, 0xcf:
		v, err := r.be(1 << (t - 0xcc))
		return int64(v), err
	case 0xd0, 0xd1, 0xd2, 0xd3:
		n := 1 << (t - 0xd0)
		v, err := r.be(n)
		shift := 64 - 8*n
		return int64(v<<shift) >> shift, err
	case 0xcb:
		_, err := r.be(8)
		return nil, err
	case 0xdc:
		v, err := r.be(2)
		return mpArray(v), err
	case 0xde:
		v, err := r.be(2)
		return mpMap(v), err
	}
	return nil, errForm
}

// decodeParts reads a message that a stage sent to the API.
func decodeParts(parts [][]byte) (*Message, error) {
	if len(parts) == 1 {
		return decodeMap(parts[0])
	}
	return decodeArray(parts)
}

func decodeMap(body []byte) (*Message, error) {
	r := mpReader{body}
	v, err := r.next()
	pairs, ok := v.(mpMap)
	if err != nil || !ok {
		return nil, errForm
	}
	m := &Message{Chunk: -1}
	for range int(pairs) {
		k, err1 := r.next()
		v, err2 := r.next()
		key, ok := k.([]byte)
		if err1 != nil || err2 != nil || !ok {
			return nil, errForm
		}
		m.set(string(key), v)
	}
	if m.Type == MsgNone {
		return nil, errForm
	}
	return m, nil
}

func (m *Message) set(key string, v any) {
	switch v := v.(type) {
	case []byte:
		switch key {
		case "type":
			m.Type = msgTypeOf(string(v))
		case "request_id":
			m.ID = string(v)
		case "from_stage":
			m.From, _, _ = strings.Cut(string(v), "@")
		case "data":
			m.Data = v
		}
	case int64:
		if key == "chunk_id" {
			m.Chunk = int(v)
		}
	case bool:
		if key == "final" {
			m.Final = v
		}
	}
}

func decodeArray(parts [][]byte) (*Message, error) {
	byType := map[byte]MsgType{0: MsgStream, 2: MsgComplete, 3: MsgHealth}
	if len(parts[0]) != 1 {
		return nil, errForm
	}
	m := &Message{Type: byType[parts[0][0]], Chunk: -1}
	r := mpReader{parts[1]}
	v, err := r.next()
	n, ok := v.(mpArray)
	if err != nil || !ok || n < 7 || m.Type == MsgNone {
		return nil, errForm
	}
	keys := []string{"request_id", "from_stage", "to_stage", "chunk_id", "final"}
	for _, key := range keys {
		v, err := r.next()
		if err != nil {
			return nil, errForm
		}
		m.set(key, v)
	}
	if len(parts) > 2 {
		m.Data = parts[2]
	}
	return m, nil
}

func decodeLine(line []byte) (*Message, error) {
	var v struct {
		Type  string `json:"type"`
		ID    string `json:"request_id"`
		From  string `json:"from_stage"`
		Chunk int    `json:"chunk_id"`
		Final bool   `json:"final"`
		Data  string `json:"data"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return nil, fmt.Errorf("decode line: %w", err)
	}
	m := &Message{Type: msgTypeOf(v.Type), ID: v.ID, Chunk: v.Chunk, Final: v.Final, Data: []byte(v.Data)}
	m.From, _, _ = strings.Cut(v.From, "@")
	if m.Type == MsgNone {
		return nil, errForm
	}
	return m, nil
}
