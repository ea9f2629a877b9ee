package loadgen

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	// charsPerToken sizes a synthetic prompt for a length given in tokens. The text is common English
	// words of this mean length with their space, which vocabularies of today hold as one token each;
	// what the engine counted is in its usage figures.
	charsPerToken = 7
	// BlockChars is the length of one block of a prompt: the 512 tokens of Mooncake's hash_ids.
	BlockChars = 512 * charsPerToken

	maxTraceLine = 16 << 20
)

// trace is a source that reads planned requests from a file, line by line.
type trace struct {
	cfg   *Config
	path  string
	file  *os.File
	sc    *bufio.Scanner
	line  int
	parse func(line []byte) (Item, error) // sets what the line says; OffsetNS from the trace's own zero

	n      int
	zeroNS int64 // of the trace's own clock: the time of its first request
	lastNS int64
	head   *manifestHead // of a frozen plan
}

// openTrace tells the format by the first line: a frozen plan, Mooncake's JSON lines, or BurstGPT's
// table.
func openTrace(cfg *Config) (*trace, error) {
	f, err := os.Open(cfg.Replay)
	if err != nil {
		return nil, fmt.Errorf("load plan: %w", err)
	}
	t := &trace{cfg: cfg, path: cfg.Replay, file: f, sc: bufio.NewScanner(f)}
	t.sc.Buffer(nil, maxTraceLine)
	if err := t.begin(); err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

func (t *trace) begin() error {
	if !t.sc.Scan() {
		return t.fault(errors.Join(errors.New("the file is empty"), t.sc.Err()))
	}
	t.line = 1
	first := bytes.TrimPrefix(t.sc.Bytes(), []byte("\xef\xbb\xbf"))
	switch {
	case bytes.Contains(first, []byte(manifestFormat)):
		t.head = new(manifestHead)
		if err := json.Unmarshal(first, t.head); err != nil {
			return t.fault(err)
		}
		t.parse = parseManifest
	case bytes.HasPrefix(first, []byte("{")):
		// Mooncake has no head: the first line is read again as a request.
		t.parse = parseMooncake
		if _, err := t.file.Seek(0, io.SeekStart); err != nil {
			return t.fault(err)
		}
		t.line, t.sc = 0, bufio.NewScanner(t.file)
		t.sc.Buffer(nil, maxTraceLine)
	default:
		columns, err := csvFields(first)
		if err != nil {
			return t.fault(err)
		}
		if t.parse, err = burstGPT(columns); err != nil {
			return t.fault(err)
		}
	}
	return nil
}

func (t *trace) fault(err error) error {
	return fmt.Errorf("load plan: %s line %d: %w", t.path, max(t.line, 1), err)
}

func (t *trace) close() { t.file.Close() }

func (t *trace) next() (Item, bool, error) {
	if t.cfg.N > 0 && t.n == t.cfg.N+t.cfg.Warmup {
		return Item{}, false, nil
	}
	for t.sc.Scan() {
		t.line++
		l := bytes.TrimSpace(t.sc.Bytes())
		if len(l) == 0 {
			continue
		}
		it, err := t.parse(l)
		if err == nil {
			err = t.place(&it)
		}
		if err != nil {
			return it, false, t.fault(err)
		}
		if d := t.cfg.Duration; d > 0 && it.OffsetNS >= d.Nanoseconds() {
			return Item{}, false, nil
		}
		return it, true, nil
	}
	if err := t.sc.Err(); err != nil {
		return Item{}, false, t.fault(err)
	}
	return Item{}, false, nil
}

// place numbers the request and sets its time relative to the first one.
func (t *trace) place(it *Item) error {
	t.n++
	if t.head != nil {
		if it.N != t.n {
			return fmt.Errorf("request %d where %d belongs: lines of a frozen plan must not be moved or left out", it.N, t.n)
		}
	} else {
		it.N = t.n
		if it.N <= t.cfg.Warmup {
			it.Class = classWarmup
		}
		if t.n == 1 {
			t.zeroNS = it.OffsetNS
		}
		it.OffsetNS = int64(math.Round(float64(it.OffsetNS-t.zeroNS) / t.cfg.ReplaySpeed))
	}
	switch {
	case it.After != 0 && it.After != it.N-1:
		return fmt.Errorf("request %d comes after %d: turns of a conversation must stand on successive lines", it.N, it.After)
	case it.After == 0 && it.OffsetNS < t.lastNS && !(t.head != nil && it.OffsetNS == -1):
		return errors.New("the time is before that of the request above: sort the trace by time")
	case it.After == 0:
		t.lastNS = it.OffsetNS
	}
	return nil
}

// parseMooncake reads a line of the traces published with Mooncake (Qin et al., FAST 2025):
// milliseconds, lengths in tokens, and the identities of the prompt's blocks of 512 tokens.
func parseMooncake(l []byte) (Item, error) {
	var r struct {
		Timestamp *float64 `json:"timestamp"`
		Input     *int     `json:"input_length"`
		Output    *int     `json:"output_length"`
		Blocks    []int64  `json:"hash_ids"`
	}
	if err := json.Unmarshal(l, &r); err != nil {
		return Item{}, fmt.Errorf("no JSON object of the Mooncake form: %w", err)
	}
	if r.Timestamp == nil || r.Input == nil || r.Output == nil {
		return Item{}, errors.New("timestamp, input_length or output_length is missing")
	}
	return traced(*r.Timestamp*1e6, *r.Input, *r.Output, r.Blocks)
}

// burstGPT reads rows of the BurstGPT traces (Wang et al., 2024): seconds and lengths in tokens. A
// row without response tokens failed when it was traced; it is sent and asks for one token.
func burstGPT(columns []string) (func([]byte) (Item, error), error) {
	at := func(name string) int {
		return slices.IndexFunc(columns, func(c string) bool { return strings.EqualFold(strings.TrimSpace(c), name) })
	}
	ts, in, out := at("Timestamp"), at("Request tokens"), at("Response tokens")
	if ts < 0 || in < 0 || out < 0 {
		return nil, errors.New("neither a frozen plan, nor JSON lines of Mooncake, nor a table with the columns Timestamp, Request tokens and Response tokens of BurstGPT")
	}
	return func(l []byte) (Item, error) {
		f, err := csvFields(l)
		if err != nil {
			return Item{}, err
		}
		if len(f) != len(columns) {
			return Item{}, fmt.Errorf("%d columns, the head has %d", len(f), len(columns))
		}
		s, errS := strconv.ParseFloat(f[ts], 64)
		i, errI := strconv.Atoi(f[in])
		o, errO := strconv.Atoi(f[out])
		if err := errors.Join(errS, errI, errO); err != nil {
			return Item{}, errors.New("timestamp or token count is no number")
		}
		return traced(s*1e9, i, o, nil)
	}, nil
}

func csvFields(l []byte) ([]string, error) {
	f, err := csv.NewReader(bytes.NewReader(l)).Read()
	if err != nil {
		return nil, fmt.Errorf("no line of a comma-separated table: %w", err)
	}
	return f, nil
}

func traced(ns float64, in, out int, blocks []int64) (Item, error) {
	const longest = 100 * 365 * 24 * 3600 * 1e9
	if !(ns >= 0 && ns < longest) || in < 0 || out < 0 || in > 10_000_000 || out > 10_000_000 {
		return Item{}, errors.New("time or token count is out of range")
	}
	return Item{
		OffsetNS: int64(math.Round(ns)), PromptChars: max(in, 1) * charsPerToken, MaxTokens: max(out, 1), Blocks: blocks,
	}, nil
}
