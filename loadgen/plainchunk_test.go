package loadgen

import (
	"encoding/json"
	"testing"
)

// What plainChunk takes, it takes as the full decoder does.
func TestPlainChunk(t *testing.T) {
	const head = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":17,"model":"m",`
	for _, tc := range []struct {
		data string
		text int // -1: left to the full decoder
	}{
		{head + `"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}`, 5},
		{head + `"choices": [ {"delta" : {"content":"a\"\\\n中"}, "logprobs":null, "finish_reason":null} ], "usage":null}` + "\n", 7},
		{head + `"choices":[{"index":0,"delta":{"content":"\u4e2d"},"finish_reason":null}]}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}`, -1},
		{head + `"choices":[{"index":0,"delta":{"role":"assistant","content":"x"},"finish_reason":null}]}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"usage":{"completion_tokens":4}}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":"x"}},{"index":1,"delta":{"content":"y"}}]}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":"x","reasoning":"y"}}]}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":["x"]}}]}`, -1},
		{head + `"modality":"audio","choices":[{"index":0,"delta":{"content":"x"}}]}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":"x"}}],"error":null}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":"x"}}]} {}`, -1},
		{head + `"choices":[{"index":0,"delta":{"content":"x"`, -1},
		{`{`, -1},
		{``, -1},
		{"{\"choices\":[{\"delta\":{\"content\":\"a\nb\"}}]}", -1},
	} {
		n, chars, ok := plainChunk([]byte(tc.data))
		if ok != (tc.text >= 0) || ok && n != tc.text {
			t.Errorf("%s: %d, %v; want %d", tc.data, n, ok, tc.text)
		}
		if !ok {
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(tc.data), &c); err != nil {
			t.Errorf("%s: %v", tc.data, err)
		}
		if p := c.parts(); p.text != n || p.textChars != chars || p.reasoning+len(p.audio) > 0 {
			t.Errorf("%s: %d bytes, %d characters; the full decoder says %+v", tc.data, n, chars, p)
		}
	}
}

func FuzzPlainChunk(f *testing.F) {
	f.Add([]byte(`{"id":"c","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}],"usage":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, chars, ok := plainChunk(b)
		if !ok {
			return
		}
		var c chunk
		if err := json.Unmarshal(b, &c); err != nil {
			t.Skip() // numbers are not checked to the last
		}
		if p := c.parts(); p.text != n || p.textChars != chars || p.reasoning+len(p.audio) > 0 {
			t.Errorf("%q: %d bytes, %d characters; the full decoder says %+v", b, n, chars, p)
		}
	})
}
