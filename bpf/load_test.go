package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

// Root only: every program and map loads on the running kernel.
func TestLoad(t *testing.T) {
	var o StagelineObjects
	err := LoadStagelineObjects(&o, nil)
	var v *ebpf.VerifierError
	if errors.As(err, &v) {
		t.Fatalf("%+v", v)
	}
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	var w WatchObjects
	if err := LoadWatchObjects(&w, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	w.Close()
}
