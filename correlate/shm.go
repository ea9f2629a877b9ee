package correlate

import (
	"slices"
	"strconv"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// segment is one life of a shared-memory object.
type segment struct {
	seq      uint64
	name     string
	dev      uint32
	inode    uint64
	creator  uint32 // process that created it; 0: not seen
	created  int64
	size     int64
	unlinked int64 // return of the unlink; 0 alive
	lastNS   int64
	uses     []use // by process, in order of first use
	polls    []poll
	locks    []lockCall // calls that asked for it as a lock
	kept     bool       // mapped by a process when the recording began
	swept    bool
	framed   bool // a message refers to it
	owner    *request
}

// use is what one process did with a segment. Times are 0 when not seen.
type use struct {
	tgid                   uint32
	tid                    uint32
	openNS, openEndNS      int64 // first open entered, returned
	reopenNS               int64 // last open entered
	truncNS                int64 // returned
	mapNS, mapEndNS        int64 // first map entered, returned
	remapEndNS             int64 // last map returned
	unmapNS                int64 // last unmap entered
	unmapEndNS             int64
	unlinkNS, unlinkEndNS  int64
	renameNS               int64 // returned
	mappedBytes, truncated int64
	mapped                 bool // also when its map call was not seen
}

// lockCall is one call that asked for a lock, entered and returned.
type lockCall struct {
	tgid        uint32
	enter, exit int64
}

// poll is a process that looked for a segment before it was there.
type poll struct {
	tgid        uint32
	first, last int64
	n           int
}

type shmKey struct {
	dev   uint32
	inode uint64
}

type shmTable struct {
	byName  map[string]*segment
	byInode map[shmKey]*segment
	all     []*segment // by first sight
	locks   []*segment // those of them that were used as locks, by first such use
	missing map[string][]poll
	seq     uint64
}

func (s *shmTable) init() {
	s.byName, s.byInode = map[string]*segment{}, map[shmKey]*segment{}
	s.missing = map[string][]poll{}
}

const (
	oCreat = 0x40 // O_CREAT and O_EXCL of linux/x86-64 and arm64
	oExcl  = 0x80
	enoent = 2
	// maxMissing bounds names that were looked for and never appeared.
	maxMissing = 8192
	lockUn     = 8 // LOCK_UN
	// maxSegments bounds segments that nobody unlinks.
	maxSegments = 16384
	// maxLockCalls bounds the calls kept of one lock.
	maxLockCalls = 256
)

func (t *Timeline) shmOp(r *run.Shm) {
	s := &t.shm
	if r.Op == run.ShmOpen && r.Ret == -enoent {
		s.poll(r)
		return
	}
	if r.Ret < 0 {
		return
	}
	g := s.find(r)
	if g == nil {
		return
	}
	if r.Name != "" && g.name == "" {
		g.name = r.Name
	}
	if r.Op == run.ShmFlock {
		s.lock(g, r)
		return
	}
	g.lastNS = max(g.lastNS, r.ExitNS, r.EnterNS)
	g.note(g.use(r), r)
	if g.owner == nil && !g.framed && r.Op == run.ShmOpen && g.name != "" {
		t.nameOwner(g)
	}
}

// note files a call under what its process did.
func (g *segment) note(u *use, r *run.Shm) {
	switch r.Op {
	case run.ShmOpen, run.ShmMemfd:
		if u.openNS == 0 {
			u.openNS, u.openEndNS = r.EnterNS, r.ExitNS
		}
		u.reopenNS = r.EnterNS
		// Another may have entered its open before, and found the segment there when it looked.
		made := r.Op == run.ShmMemfd || r.Flags&oCreat != 0 && (r.Flags&oExcl != 0 || len(g.uses) == 1)
		if g.created == 0 && made {
			g.creator, g.created = r.TGID, r.EnterNS
		}
	case run.ShmTruncate:
		u.truncNS, u.truncated = r.ExitNS, r.Size
		g.size = max(g.size, r.Size)
	case run.ShmMap:
		if u.mapNS == 0 {
			u.mapNS, u.mapEndNS = r.EnterNS, r.ExitNS
		}
		u.mapped, u.remapEndNS = true, r.ExitNS
		u.mappedBytes = max(u.mappedBytes, r.Size)
	case run.ShmSeen:
		u.mapped, g.kept = true, true
		u.mappedBytes = max(u.mappedBytes, r.Size)
		g.size = max(g.size, r.Size)
	case run.ShmUnmap:
		u.unmapNS, u.unmapEndNS = r.EnterNS, r.ExitNS
	case run.ShmRename:
		u.renameNS = r.ExitNS
	case run.ShmUnlink:
		u.unlinkNS, u.unlinkEndNS = r.EnterNS, r.ExitNS
		g.unlinked = r.ExitNS
	}
}

// lock keeps a call that asked for a lock; letting go of one says nothing of waiting.
func (s *shmTable) lock(g *segment, r *run.Shm) {
	if r.Flags&lockUn != 0 {
		return
	}
	if len(g.locks) == 0 {
		s.locks = append(s.locks, g)
	}
	if len(g.locks) >= maxLockCalls {
		g.locks = slices.Delete(g.locks, 0, maxLockCalls/2)
	}
	g.locks = append(g.locks, lockCall{r.TGID, r.EnterNS, r.ExitNS})
}

// find returns the segment a call works on: by inode where the kernel gave one, else by name.
func (s *shmTable) find(r *run.Shm) *segment {
	if r.Inode != 0 {
		if g := s.byInode[shmKey{r.Dev, r.Inode}]; g != nil {
			s.renamed(g, r)
			return g
		}
	}
	g := s.byName[r.Name]
	if r.Name == "" {
		g = nil
	}
	fresh := g == nil || g.unlinked != 0 && r.Op == run.ShmOpen ||
		r.Inode != 0 && g.inode != 0 && g.inode != r.Inode
	if !fresh {
		if g.inode == 0 && r.Inode != 0 {
			g.dev, g.inode = r.Dev, r.Inode
			s.byInode[shmKey{r.Dev, r.Inode}] = g
		}
		return g
	}
	if r.Op == run.ShmFlock || r.Name == "" && r.Inode == 0 {
		return nil
	}
	s.seq++
	g = &segment{seq: s.seq, name: r.Name, dev: r.Dev, inode: r.Inode, size: -1}
	g.polls = s.missing[r.Name]
	delete(s.missing, r.Name)
	s.all = append(s.all, g)
	if r.Name != "" {
		s.byName[r.Name] = g
	}
	if r.Inode != 0 {
		s.byInode[shmKey{r.Dev, r.Inode}] = g
	}
	return g
}

// renamed follows a segment to the name that it is opened by since it was renamed.
func (s *shmTable) renamed(g *segment, r *run.Shm) {
	if r.Op != run.ShmOpen || r.Name == "" || r.Name == g.name || !slices.ContainsFunc(g.uses, func(u use) bool { return u.renameNS != 0 }) {
		return
	}
	if s.byName[g.name] == g {
		delete(s.byName, g.name)
	}
	g.name = r.Name
	g.polls = append(g.polls, s.missing[r.Name]...)
	delete(s.missing, r.Name)
	s.byName[r.Name] = g
}

func (g *segment) use(r *run.Shm) *use {
	for i := range g.uses {
		if g.uses[i].tgid == r.TGID {
			return &g.uses[i]
		}
	}
	g.uses = append(g.uses, use{tgid: r.TGID, tid: r.TID})
	return &g.uses[len(g.uses)-1]
}

// by returns what a process did with the segment, nil if nothing was seen.
func (g *segment) by(tgid uint32) *use {
	if g == nil {
		return nil
	}
	for i := range g.uses {
		if g.uses[i].tgid == tgid {
			return &g.uses[i]
		}
	}
	return nil
}

func (s *shmTable) poll(r *run.Shm) {
	if g := s.byName[r.Name]; g != nil && g.unlinked == 0 { // entered while it was being created
		g.polls = addPoll(g.polls, r)
		return
	}
	if _, ok := s.missing[r.Name]; !ok && len(s.missing) >= maxMissing {
		clear(s.missing)
	}
	s.missing[r.Name] = addPoll(s.missing[r.Name], r)
}

func addPoll(l []poll, r *run.Shm) []poll {
	for i := range l {
		if l[i].tgid == r.TGID {
			l[i].last = r.ExitNS
			l[i].n++
			return l
		}
	}
	return append(l, poll{r.TGID, r.EnterNS, r.ExitNS, 1})
}

// at returns the life of a named segment that a message refers to.
func (s *shmTable) at(name string, ns int64) *segment {
	g := s.byName[name]
	if g == nil || g.created <= ns { // also when its creation was not seen
		return g
	}
	for i := len(s.all) - 1; i >= 0; i-- { // the name was used again since
		if s.all[i].name == name && s.all[i].created <= ns {
			return s.all[i]
		}
	}
	return nil
}

func (g *segment) firstNS() int64 {
	if g.created != 0 {
		return g.created
	}
	if len(g.uses) > 0 {
		return g.uses[0].openNS
	}
	return 0
}

// nameOwner joins a segment to the request whose id stands in its name.
func (t *Timeline) nameOwner(g *segment) {
	best, clash := "", false
	var owner *request
	for sub := range parts(g.name) {
		r := t.ids.active[sub]
		if r == nil || len(sub) < len(best) || !nameHolds(g.name, sub) || r.weakAlias(sub) {
			continue
		}
		clash = len(sub) == len(best) && owner != nil && owner != r
		best, owner = sub, r
	}
	if r := t.ids.active[g.name]; r != nil {
		owner, clash = r, false
	}
	if owner == nil || clash {
		return
	}
	g.owner = owner
	owner.segments = append(owner.segments, g)
}

// namedSegments takes ids that are names of segments for what they are: references.
func (t *Timeline) namedSegments(m *run.Message) {
	m.IDs = slices.DeleteFunc(m.IDs, func(ref run.IDRef) bool {
		if t.shm.byName[ref.Value] == nil || t.ids.active[ref.Value] != nil {
			return false
		}
		m.Shm = append(m.Shm, run.ShmRef{Name: ref.Value, Size: -1})
		return true
	})
}

// nameHolds reports that an id stands in a segment name as a whole: between the ends of the name
// and '_', so that "r-1" does not stand in "r-1-2_encoder_0".
func nameHolds(name, id string) bool {
	for at := 0; ; {
		i := strings.Index(name[at:], id)
		if i < 0 {
			return false
		}
		i += at
		end := i + len(id)
		if (i == 0 || name[i-1] == '_') && (end == len(name) || name[end] == '_' || name[end] == '.') {
			return true
		}
		at = i + 1
	}
}

// nameChunk is the chunk number that ends a segment name after its id and stage, -1 none.
func nameChunk(name string, r *request) int64 {
	rest := ""
	for _, id := range r.names() {
		if i := strings.Index(name, id); i >= 0 && nameHolds(name, id) && (rest == "" || len(name)-i-len(id) < len(rest)) {
			rest = name[i+len(id):]
		}
	}
	i := strings.LastIndexByte(rest, '_')
	if i < 0 {
		return -1
	}
	n, err := strconv.ParseInt(rest[i+1:], 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// names are all names of a request, its id first.
func (r *request) names() []string {
	out := []string{r.id}
	for _, a := range r.aliases {
		out = append(out, a.Value)
	}
	return out
}

// sweep drops segments that no request can refer to any more.
func (s *shmTable) sweep(before int64) {
	excess := len(s.all) - maxSegments
	s.all = slices.DeleteFunc(s.all, func(g *segment) bool {
		old := g.lastNS < before && (g.unlinked != 0 || excess > 0)
		if !old {
			return false
		}
		excess--
		if s.byName[g.name] == g {
			delete(s.byName, g.name)
		}
		if k := (shmKey{g.dev, g.inode}); s.byInode[k] == g {
			delete(s.byInode, k)
		}
		g.swept = true
		return true
	})
	s.locks = slices.DeleteFunc(s.locks, func(g *segment) bool { return g.swept })
}
