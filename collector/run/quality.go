package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
)

// qualityLog is quality.jsonl, made with its first line. Lines are few (one a reply with audio), so
// each is one write.
type qualityLog struct {
	mu     sync.Mutex
	f      *os.File
	closed bool
}

// Quality appends one line to quality.jsonl.
func (w *Writer) Quality(q *Quality) error {
	line, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("encode quality of %q: %w", q.RequestID, err)
	}
	l := &w.quality
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("write quality.jsonl: the run writer is closed")
	}
	if l.f == nil {
		if l.f, err = w.NewFile(FileQuality); err != nil {
			return err
		}
	}
	if _, err := l.f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write %s: %w; free space on that disk", l.f.Name(), err)
	}
	return nil
}

func (l *qualityLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.f == nil {
		return nil
	}
	return errors.Join(l.f.Sync(), l.f.Close())
}

// Qualities passes all lines of quality.jsonl; a run without one has none.
func (r *Run) Qualities(each func(*Quality) error) error {
	return lines(r.dir, FileQuality, each)
}
