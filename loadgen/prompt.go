package loadgen

import (
	mrand "math/rand/v2"
	"strconv"
	"strings"
)

var words = strings.Fields("river stone light morning window paper garden engine signal table " +
	"winter bridge market silver copper forest letter number circle station harbour valley")

// synthetic returns chars bytes of plain words.
func synthetic(seed uint64, chars int) string {
	r := mrand.New(mrand.NewPCG(seed, 0x70726f6d7074))
	var b strings.Builder
	b.Grow(chars + 16)
	for b.Len() < chars {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()[:chars]
}

// synthesis makes the text of synthetic prompts from what the plan says of them alone, so that equal
// plans send equal text and what is to share a prefix does.
type synthesis struct {
	shared string // what all prompts begin with
	text   string // cut and repeated as needed
}

const minSynthesis = 4096

func newSynthesis(cfg *Config) *synthesis {
	longest := cfg.PromptChars
	for _, k := range cfg.Classes {
		longest = max(longest, k.PromptChars)
	}
	return &synthesis{
		shared: synthetic(cfg.Seed+1, cfg.SharedPrefix),
		text:   synthetic(cfg.Seed, max(longest, minSynthesis)),
	}
}

// append adds the prompt of a request: the shared prefix, its blocks, and then text of its own that
// begins with the number of the request (of a conversation: of its first turn). No two requests have
// more in common at the beginning than the plan says, and an engine can have cached no more.
func (s *synthesis) append(dst []byte, it *Item) []byte {
	dst = append(dst, s.shared...)
	left := it.PromptChars
	for _, id := range it.Blocks {
		if left <= 0 {
			return dst
		}
		n := min(left, BlockChars)
		dst = s.part(append(dst, 'b'), id, n-1) // b: no request's own number
		left -= n
	}
	if left > 0 {
		dst = s.part(dst, int64(it.root()), left)
	}
	return dst
}

// part adds n characters that begin with a number.
func (s *synthesis) part(dst []byte, number int64, n int) []byte {
	end := len(dst) + n
	dst = strconv.AppendInt(dst, number, 10)
	dst = append(dst, ' ')
	for len(dst) < end {
		dst = append(dst, s.text[:min(len(s.text), end-len(dst))]...)
	}
	return dst[:end]
}
