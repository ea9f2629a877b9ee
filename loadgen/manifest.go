package loadgen

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const manifestFormat = "stageline-plan/1"

// manifestHead is the first line of a frozen plan: what the lines below it amount to, and what else
// the text of their prompts follows from.
type manifestHead struct {
	Format        string `json:"format"`
	Requests      int    `json:"requests"`
	OpenLoop      bool   `json:"open_loop"`
	ScheduleHash  string `json:"schedule_sha256"`
	Seed          uint64 `json:"seed"`
	SharedPrefix  int    `json:"shared_prefix_chars"`
	PromptsSHA256 string `json:"prompts_sha256,omitempty"` // of given prompts; absent: synthetic ones
}

// manifestLine is one planned request of a frozen plan.
type manifestLine struct {
	N           int     `json:"n"`
	AtNS        *int64  `json:"at_ns,omitempty"` // after the start of the run
	After       int     `json:"after,omitempty"`
	GapNS       int64   `json:"gap_ns,omitempty"` // after the end of the reply to request After
	Class       string  `json:"class,omitempty"`
	Tenant      string  `json:"tenant,omitempty"`
	Session     string  `json:"session,omitempty"`
	Turn        int     `json:"turn,omitempty"`
	PromptChars int     `json:"prompt_chars"`
	MaxTokens   int     `json:"max_tokens,omitempty"`
	Blocks      []int64 `json:"blocks,omitempty"`
}

// WriteManifest writes the plan in a form that Config.Replay reads: the same list of requests at the
// same times, whatever system it is sent to.
func (p *Plan) WriteManifest(w io.Writer) error {
	if p.n < 0 {
		return errors.New("load plan: a closed loop bounded by time alone has no list to freeze: give a number of requests")
	}
	src, done, err := p.items()
	if err != nil {
		return err
	}
	defer done()
	bw := bufio.NewWriter(w)
	e := json.NewEncoder(bw)
	head := manifestHead{
		Format: manifestFormat, Requests: p.n, OpenLoop: p.Open(), ScheduleHash: p.hash,
		Seed: p.cfg.Seed, SharedPrefix: p.cfg.SharedPrefix, PromptsSHA256: promptsHash(p.cfg.Prompts),
	}
	if err := e.Encode(head); err != nil {
		return err
	}
	for {
		it, ok, err := src.next()
		if err != nil {
			return err
		}
		if !ok {
			return bw.Flush()
		}
		if err := e.Encode(lineOf(&it)); err != nil {
			return err
		}
	}
}

func lineOf(it *Item) manifestLine {
	l := manifestLine{
		N: it.N, After: it.After, GapNS: it.GapNS, Class: it.Class, Tenant: it.Tenant, Session: it.Session,
		Turn: it.Turn, PromptChars: it.PromptChars, MaxTokens: it.MaxTokens, Blocks: it.Blocks,
	}
	if it.OffsetNS >= 0 {
		l.AtNS = &it.OffsetNS
	}
	return l
}

func parseManifest(b []byte) (Item, error) {
	var l manifestLine
	if err := json.Unmarshal(b, &l); err != nil {
		return Item{}, fmt.Errorf("no request of a frozen plan: %w", err)
	}
	it := Item{
		N: l.N, OffsetNS: -1, After: l.After, GapNS: l.GapNS, Class: l.Class, Tenant: l.Tenant, Session: l.Session,
		Turn: l.Turn, PromptChars: l.PromptChars, MaxTokens: l.MaxTokens, Blocks: l.Blocks,
	}
	if l.AtNS != nil {
		it.OffsetNS = *l.AtNS
	}
	switch {
	case l.PromptChars < 0 || l.MaxTokens < 0 || l.GapNS < 0 || it.OffsetNS < -1:
		return it, errors.New("a negative number")
	case l.Class != "" && !idShaped(l.Class), l.Tenant != "" && !idShaped(l.Tenant), l.Session != "" && !idShaped(l.Session):
		return it, errors.New("class, tenant or session is no short name")
	case l.Turn > 1 && l.After == 0, l.Turn < 0, l.Turn > l.N:
		return it, errors.New("turn without the turn before it")
	}
	return it, nil
}

// adopt takes from a frozen plan what its prompts follow from, and checks what must be given again.
func (h *manifestHead) adopt(cfg *Config) error {
	if h.Format != manifestFormat {
		return fmt.Errorf("load plan: %s: format %q, this version reads %q", cfg.Replay, h.Format, manifestFormat)
	}
	if got := promptsHash(cfg.Prompts); got != h.PromptsSHA256 {
		if h.PromptsSHA256 == "" {
			return fmt.Errorf("load plan: %s was frozen with synthetic prompts: leave out the prompts", cfg.Replay)
		}
		return fmt.Errorf("load plan: %s was frozen with other prompts: give the file of prompts that it was made with", cfg.Replay)
	}
	cfg.Seed, cfg.SharedPrefix = h.Seed, h.SharedPrefix
	return nil
}

// promptsHash digests given prompts; "" when there are none.
func promptsHash(prompts []string) string {
	if len(prompts) == 0 {
		return ""
	}
	h := sha256.New()
	for _, p := range prompts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}
