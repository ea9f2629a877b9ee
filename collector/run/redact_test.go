package run

import (
	"slices"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct{ in, want string }{ // arguments separated by |
		{"serve|--api-key=abc|--port=80", "serve|--api-key=***|--port=80"},
		{"serve|--api-key|abc|def", "serve|--api-key|***|def"},
		{"--api-key|--port|80", "--api-key|--port|80"},
		{"--apiKey=x y, z", "--apiKey=***"},
		{"-p|--hf-token|abc", "-p|--hf-token|***"},
		{"TOKEN=1x|HF_TOKEN=abc|AWS_SECRET_ACCESS_KEY=q|DB_PASSWORD=123456", "TOKEN=***|HF_TOKEN=***|AWS_SECRET_ACCESS_KEY=***|DB_PASSWORD=***"},
		{"python|-m|x|hf_AbCdEfGhIjKl|sk-proj-abcdefgh1234", "python|-m|x|***|***"},
		{"--url=https://bob:pw@host/x?token=abc&b=1", "--url=https://bob:***@host/x?token=***&b=1"},
		{"-H|Authorization: Bearer abcdefgh", "-H|Authorization: Bearer ***"},
		{`--config={"api_key": "abc", "block_size": 16}`, `--config={"api_key": "***", "block_size": 16}`},
		{"bash|-c|exec env SECRET=abc serve --model m", "bash|-c|exec env SECRET=*** serve --model m"},
		{"AKIAABCDEFGHIJKLMNOP", "***"},
		{"eyJhbGciOi.eyJzdWIi.c2ln", "***"},
		{"x=-----BEGIN RSA PRIVATE KEY-----\nabc", "x=***"},
		// Settings of inference engines stay.
		{"--max-tokens=512|--max-num-batched-tokens|8192|--tokenizer=auto|--tokenizer-path|/m", "--max-tokens=512|--max-num-batched-tokens|8192|--tokenizer=auto|--tokenizer-path|/m"},
		{"--max-token=512|--use-token=true|pad_token_id=3|--token|4096", "--max-token=512|--use-token=true|pad_token_id=3|--token|4096"},
		{"--key=a|--monkey|b|PWD=/home/x|--ssl-keyfile|/k|--api-key-file|/etc/k", "--key=a|--monkey|b|PWD=/home/x|--ssl-keyfile|/k|--api-key-file|/etc/k"},
		{"--model|Qwen/Qwen3-Omni|--stage=thinker|ipc:///tmp/x.sock", "--model|Qwen/Qwen3-Omni|--stage=thinker|ipc:///tmp/x.sock"},
	} {
		in := strings.Split(c.in, "|")
		kept := slices.Clone(in)
		got := Redact(in)
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, s, c.want)
		}
		if !slices.Equal(in, kept) {
			t.Errorf("%s: the argument was changed", c.in)
		}
		if again := Redact(got); !slices.Equal(again, got) {
			t.Errorf("%s: twice gives %q", c.in, again)
		}
	}
}

func TestLongCommandLinesAreClipped(t *testing.T) {
	args := []string{"a", strings.Repeat("b", maxCmdline), "cc"}
	want := []string{"a", "[2 more arguments, 65538 bytes]"}
	if got := clip(args); !slices.Equal(got, want) {
		t.Errorf("got %.100q", got)
	}
	if args[1][0] != 'b' {
		t.Error("the argument was changed")
	}
	if got := clip(args[:1]); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}
