package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Role is what a stage does; its numbers are shared with stage/stage.h and
// stagepy.
type Role int

const (
	RoleAPI Role = iota
	RolePreprocess
	RoleEncode
	RoleJoin
	RoleThink
	RoleTalk
	RoleVocode
)

var roleNames = [...]string{"api", "preprocess", "encode", "join", "think", "talk", "vocode"}

func (r Role) MarshalJSON() ([]byte, error) { return json.Marshal(roleNames[r]) }

// Carrier is what takes a message from process to process.
type Carrier int

const (
	CarrierUnix Carrier = iota
	CarrierTCP
	CarrierPipe
	CarrierMemory
	CarrierShm
	CarrierText
)

var carrierNames = [...]string{"unix", "tcp", "pipe", "memory", "shm", "unix"}

func (c Carrier) MarshalJSON() ([]byte, error) { return json.Marshal(carrierNames[c]) }

// Framing is how a message is laid out in bytes.
type Framing int

const (
	FrameMap    Framing = iota // ZMTP, one msgpack map
	FrameArray                 // ZMTP, [type byte][msgpack array][payload]
	FramePickle                // 4-byte length, pickled dict
	FrameNDJSON                // one JSON object a line
)

var framingNames = [...]string{"zmtp-map", "zmtp-array", "pickle", "ndjson"}

func (f Framing) MarshalJSON() ([]byte, error) { return json.Marshal(framingNames[f]) }

// DataPlane is where the payload of a message lies.
type DataPlane int

const (
	DataInline DataPlane = iota
	DataAnon             // /dev/shm/psm_<hex>, referred to by the message, acknowledged
	DataNamed            // /dev/shm/<request>_<from>_<tag>_<part> with a lock file
	DataPolled           // as DataNamed, but the receiver is not told and looks for it
)

var dataNames = [...]string{"inline", "shm-anonymous", "shm-named", "shm-polled"}

func (d DataPlane) MarshalJSON() ([]byte, error) { return json.Marshal(dataNames[d]) }

// Service is the law of a stage's compute.
type Service struct {
	CPUPermille  int `json:"cpu_permille"`
	BaseUS       int `json:"base_us"`
	TailPermille int `json:"tail_permille"`
	TailMult     int `json:"tail_mult"`
	PerSeqUS     int `json:"per_sequence_us"`
	Workers      int `json:"workers"`
	Backlog      int `json:"backlog"`
	Batch        int `json:"batch"`
	Filler       int `json:"filler_bytes"`
	AckFirst     int `json:"ack_before_enqueue"`
	SelfPipe     int `json:"self_pipe"`
}

// Stage is a worker role; Procs lists the processes that hold it.
type Stage struct {
	Index   int     `json:"index"`
	Name    string  `json:"name"`
	Role    Role    `json:"role"`
	Procs   []int   `json:"procs"`
	Service Service `json:"service"`
}

// Edge is one connector of the graph. Stage 0 is the API.
type Edge struct {
	From    int       `json:"from"`
	To      int       `json:"to"`
	Carrier Carrier   `json:"carrier"`
	Framing Framing   `json:"framing"`
	Data    DataPlane `json:"data"`
}

// Proc is one stage process; process 0 is the API.
type Proc struct {
	Index   int   `json:"index"`
	Stages  []int `json:"stages"`
	Replica int   `json:"replica"`
}

// Topology is all that a seed decides. Equal seeds and kinds give equal values.
type Topology struct {
	Seed      uint64  `json:"seed"`
	Kind      string  `json:"kind"`
	Pipeline  string  `json:"pipeline"` // directory of the sockets
	Comm      string  `json:"comm"`
	Socket    bool    `json:"pipe_is_socketpair"`
	WrapIDs   bool    `json:"wrap_ids"` // chatcmpl-<id>-<8 hex> inside, as vLLM does
	MinTokens int     `json:"min_tokens"`
	MaxTokens int     `json:"max_tokens"`
	MinChunks int     `json:"min_chunks"`
	MaxChunks int     `json:"max_chunks"`
	Stages    []Stage `json:"stages"`
	Edges     []Edge  `json:"edges"`
	Procs     []Proc  `json:"procs"`
}

var namePools = map[Role][]string{
	RolePreprocess: {"preprocess", "ingest", "tokenize", "frontend", "intake"},
	RoleJoin:       {"mm_aggregate", "merge", "fuse", "collect", "assemble"},
	RoleThink:      {"thinker", "llm", "reason", "decoder_lm", "core"},
	RoleTalk:       {"talker", "codec_lm", "speaker", "prosody", "talker_ar"},
	RoleVocode:     {"vocoder", "code2wav", "wave_out", "synth", "render"},
}

var encoderNames = [2][]string{
	{"image_encoder", "vision", "vit", "img_tower", "pixels"},
	{"audio_encoder", "listener", "mel_enc", "ears", "aud_tower"},
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func between(r *rand.Rand, lo, hi int) int { return lo + r.IntN(hi-lo+1) }

// drawTwo takes two numbers and returns the first: published figures name seeds, and what a seed means
// depends on how many numbers are drawn.
func drawTwo(r *rand.Rand) uint32 {
	first := r.Uint32()
	r.Uint32()
	return first
}

// Draw makes the topology of a seed. Kind is full, merged (two stages share a
// process) or small (ends at the thinker).
func Draw(seed uint64, kind string) (*Topology, error) {
	if kind != "full" && kind != "merged" && kind != "small" {
		return nil, fmt.Errorf("topology %q: want full, merged or small", kind)
	}
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	t := &Topology{
		Seed: seed, Kind: kind,
		Pipeline:  fmt.Sprintf("%s-%08x", pick(r, []string{"omni", "pipeline", "mm", "speech", "serve"}), drawTwo(r)),
		Comm:      pick(r, []string{"python", "worker", "engine", "stage", "pt_main_thread"}),
		Socket:    r.IntN(2) == 0,
		WrapIDs:   r.IntN(2) == 0,
		MinTokens: 8, MaxTokens: 20, MinChunks: 3, MaxChunks: 6,
	}
	t.drawStages(r)
	replicated := t.drawReplica(r)
	t.drawProcs(r, replicated)
	t.drawEdges(r)
	return t, nil
}

func (t *Topology) drawStages(r *rand.Rand) {
	t.Stages = []Stage{{Index: 0, Name: "coordinator", Role: RoleAPI, Procs: []int{0}}}
	roles := []Role{RolePreprocess, RoleEncode, RoleEncode, RoleJoin, RoleThink, RoleTalk, RoleVocode}
	if t.Kind == "small" {
		roles = roles[:5]
	}
	burner := 1 + r.IntN(4) // one of the light stages burns CPU, the heavy ones mostly sleep
	for i, role := range roles {
		name := ""
		if role == RoleEncode {
			name = pick(r, encoderNames[i-1])
		} else {
			name = pick(r, namePools[role])
		}
		s := Stage{Index: i + 1, Name: name, Role: role, Service: drawService(r, role)}
		if s.Index == burner {
			s.Service.CPUPermille = 300
		}
		t.Stages = append(t.Stages, s)
	}
}

// drawService draws the law of a stage. The laws balance the pipeline: a request asks about the same
// of each stage's servers, 30 to 40 ms (half of that where there are two), so that without a fault no
// stage holds the others up at concurrency 1 or 8. Latency differs all the same: the thinker serves
// several requests at once.
func drawService(r *rand.Rand, role Role) Service {
	s := Service{
		CPUPermille:  pick(r, []int{0, 0, 20, 50}),
		TailPermille: between(r, 10, 40),
		TailMult:     between(r, 2, 4),
		Workers:      1,
		Backlog:      between(r, 2, 8),
		Batch:        1,
		AckFirst:     r.IntN(2),
		SelfPipe:     r.IntN(2),
	}
	switch role {
	case RolePreprocess:
		s.BaseUS, s.Filler = between(r, 28000, 32000), between(r, 512, 4096)
	case RoleEncode:
		s.BaseUS, s.Filler, s.Workers = between(r, 32000, 38000), between(r, 8<<10, 64<<10), between(r, 1, 2)
	case RoleJoin:
		s.BaseUS, s.Filler = between(r, 27000, 32000), between(r, 1024, 8192)
	case RoleThink:
		s.BaseUS, s.PerSeqUS, s.Batch, s.Filler = between(r, 900, 1300), 1800, between(r, 3, 6), between(r, 16<<10, 64<<10)
		s.Backlog = between(r, 6, 16)
	case RoleTalk:
		s.BaseUS, s.Filler, s.Workers = between(r, 5800, 6800), between(r, 1024, 4096), between(r, 1, 2)
	case RoleVocode:
		s.BaseUS, s.Filler = between(r, 5800, 6800), 2*pick(r, []int{1200, 1920, 2400})
	}
	return s
}

// drawReplica chooses the stage that two processes hold; 0 when there is none.
func (t *Topology) drawReplica(r *rand.Rand) int {
	if t.Kind == "small" {
		return 0
	}
	candidates := []int{2, 3, 6, 7}
	if t.Kind == "merged" {
		candidates = []int{2, 3}
	}
	i := pick(r, candidates)
	s := &t.Stages[i]
	s.Service.BaseUS = s.Service.BaseUS * 13 / 10 // two processes share the load
	s.Service.Workers = 1
	return i
}

func (t *Topology) drawProcs(r *rand.Rand, replicated int) {
	t.Procs = []Proc{{Index: 0, Stages: []int{0}}}
	into := 0 // the stage that lives in its predecessor's process
	if t.Kind == "merged" {
		into = pick(r, []int{5, 7})
	}
	for i := 1; i < len(t.Stages); i++ {
		if i == into {
			p := &t.Procs[len(t.Procs)-1]
			p.Stages = append(p.Stages, i)
			t.Stages[i].Procs = []int{p.Index}
			continue
		}
		n := 1
		if i == replicated {
			n = 2
		}
		for k := range n {
			p := Proc{Index: len(t.Procs), Stages: []int{i}, Replica: k}
			t.Procs = append(t.Procs, p)
			t.Stages[i].Procs = append(t.Stages[i].Procs, p.Index)
		}
	}
}

// Every topology has a TCP, a pipe, an anonymous and a named shared-memory edge.
func (t *Topology) drawEdges(r *rand.Rand) {
	pairs := [][2]int{{1, 2}, {1, 3}, {2, 4}, {3, 4}, {4, 5}, {5, 6}, {6, 7}}
	if t.Kind == "small" {
		pairs = pairs[:5]
	}
	if r.IntN(2) == 0 {
		pairs = append(pairs, [2]int{1, 4})
	}
	kinds := []Edge{
		{Carrier: CarrierUnix, Framing: FrameMap, Data: DataAnon},
		{Carrier: CarrierUnix, Framing: FrameArray, Data: DataNamed},
		{Carrier: CarrierTCP, Framing: FrameMap, Data: DataInline},
		{Carrier: CarrierPipe, Framing: FramePickle, Data: DataInline},
	}
	rest := append([]Edge{{Carrier: CarrierUnix, Framing: FrameArray, Data: DataInline}, {Carrier: CarrierUnix, Framing: FrameMap, Data: DataNamed}}, kinds[:2]...)
	order := r.Perm(len(pairs))
	next := 0
	for _, i := range order {
		e := Edge{}
		switch {
		case t.sameProc(pairs[i][0], pairs[i][1]):
			e = Edge{Carrier: CarrierMemory}
		case next < len(kinds):
			e = kinds[next]
			next++
		default:
			e = pick(r, rest)
		}
		e.From, e.To = pairs[i][0], pairs[i][1]
		t.Edges = append(t.Edges, e)
	}
	t.drawAPIEdges(r)
}

func (t *Topology) drawAPIEdges(r *rand.Rand) {
	t.Edges = append(t.Edges, Edge{From: 0, To: 1, Framing: pick(r, []Framing{FrameMap, FrameArray})})
	text := pick(r, []Edge{{Framing: FrameMap}, {Framing: FrameArray}, {Framing: FrameNDJSON, Carrier: CarrierText}})
	text.From = 5
	t.Edges = append(t.Edges, text)
	if t.Kind != "small" {
		t.Edges = append(t.Edges, Edge{From: 7, To: 0, Framing: pick(r, []Framing{FrameMap, FrameArray})})
	}
}

// PollChunks makes the vocoder look for its chunks instead of being told.
func (t *Topology) PollChunks() error {
	e := t.EdgeOf(6, 7)
	if e == nil || e.Carrier == CarrierMemory {
		return fmt.Errorf("polled edge: seed %d has no talker and vocoder in processes of their own", t.Seed)
	}
	e.Carrier, e.Framing, e.Data = CarrierUnix, FrameArray, DataPolled
	return nil
}

// BurnCPU has every stage compute for all of its service time. The times are a quarter of those drawn:
// at the rate that the sleeping pipeline reaches, about 26 requests a second, two cores then suffice.
func (t *Topology) BurnCPU() {
	for i := range t.Stages {
		s := &t.Stages[i].Service
		s.CPUPermille, s.BaseUS, s.PerSeqUS = 1000, s.BaseUS/4, s.PerSeqUS/4
	}
}

func (t *Topology) sameProc(a, b int) bool {
	return len(t.Stages[a].Procs) == 1 && len(t.Stages[b].Procs) == 1 && t.Stages[a].Procs[0] == t.Stages[b].Procs[0]
}

// StageByName finds a stage by its name; the API goes by "api".
func (t *Topology) StageByName(name string) (*Stage, error) {
	names := []string{}
	for i := range t.Stages {
		s := &t.Stages[i]
		if t.NameOf(i) == name || roleNames[s.Role] == name {
			return s, nil
		}
		names = append(names, t.NameOf(i))
	}
	return nil, fmt.Errorf("stage %q: this seed has %s", name, strings.Join(names, ", "))
}

// NameOf is the stage's name in truth: "api" for the API.
func (t *Topology) NameOf(stage int) string {
	if stage == 0 {
		return "api"
	}
	return t.Stages[stage].Name
}

// EdgeOf finds the edge between two stages, nil when there is none.
func (t *Topology) EdgeOf(from, to int) *Edge {
	for i := range t.Edges {
		if t.Edges[i].From == from && t.Edges[i].To == to {
			return &t.Edges[i]
		}
	}
	return nil
}
