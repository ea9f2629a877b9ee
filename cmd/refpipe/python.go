package main

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed stagepy/*.py
var pythonStage embed.FS

// pythonInterpreter is REFPIPE_PYTHON or python3; it must have pyzmq and msgpack.
func pythonInterpreter() (string, error) {
	python := os.Getenv("REFPIPE_PYTHON")
	if python == "" {
		python = "python3"
	}
	out, err := exec.Command(python, "-c", "import zmq.asyncio, msgpack").CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Errorf("python stages need pyzmq and msgpack, and %s cannot import them (%s): install both, or name another interpreter in REFPIPE_PYTHON: %w", python, lines[len(lines)-1], err)
	}
	return python, nil
}

// pythonCommand unpacks the Python stage into the work directory.
func pythonCommand(dir string) (command, error) {
	python, err := pythonInterpreter()
	if err != nil {
		return nil, err
	}
	dst := filepath.Join(dir, "stagepy")
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return nil, fmt.Errorf("unpack python stage: %w", err)
	}
	files, err := pythonStage.ReadDir("stagepy")
	if err != nil {
		return nil, fmt.Errorf("unpack python stage: %w", err)
	}
	for _, f := range files {
		b, err := pythonStage.ReadFile("stagepy/" + f.Name())
		if err == nil {
			err = os.WriteFile(filepath.Join(dst, f.Name()), b, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("unpack python stage: %w", err)
		}
	}
	main := filepath.Join(dst, "stage.py")
	return func(conf string) *exec.Cmd { return exec.Command(python, main, conf) }, nil
}
