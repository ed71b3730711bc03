package db

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// What scripts do to a disk, and how they find what they name on it: by its bytes.

const scriptBlock = 32

var scriptModel = sync.OnceValue(func() kv.Descriptor {
	d := plain()
	d.Name, d.BlockTokens = "script", scriptBlock
	d, _ = d.Normal()
	return d
})

var scriptChats sync.Map // by name and length

// scriptChat is the prompt of that name, n tokens of it.
func scriptChat(name string, n int) *crashChat {
	key := fmt.Sprint(name, " ", n)
	if x, ok := scriptChats.Load(key); ok {
		return x.(*crashChat)
	}
	var all []kv.Token
	own := -1
	for i := range strings.Split(name, "/") {
		letter := int(name[2*i])
		own = 64*i - 1
		all = concat(all[:64*i], []kv.Token{kv.Token(5000 + letter)}, tokens(200+letter, max(n, 64)))
	}
	x := newCrashChat(scriptModel(), kv.Prompt{Tokens: all[:n:n]}, own)
	scriptChats.Store(key, x)
	return x
}

// files are the contents of all files on the disk, by the names that it has for them.
func (r *scriptRun) files() map[string][]byte {
	out := map[string][]byte{}
	for name, b := range crashFiles(r.d) {
		out[filepath.ToSlash(name)] = b
	}
	return out
}

// span is a part of a file.
type span struct {
	file     string
	from, to int64
}

func (s span) has(file string, off int64) bool { return s.file == file && s.from <= off && off < s.to }

// bytesOf are the places in files that show tokens or rows of a prompt.
func bytesOf(x *crashChat, files map[string][]byte) (out []span) {
	var first [1 << 16]bool
	for b := range x.find {
		first[binary.LittleEndian.Uint16(b[:])] = true
	}
	for name, b := range files {
		for i := 0; i+16 <= len(b); i++ {
			if first[binary.LittleEndian.Uint16(b[i:])] {
				if _, ok := x.find[[16]byte(b[i:])]; ok {
					out = append(out, span{name, int64(i), int64(i) + 16})
				}
			}
		}
	}
	return out
}

// recordsOf are the records that have tokens or rows of a prompt (docs/format/record.md), each once.
func recordsOf(x *crashChat, files map[string][]byte) (out []span) {
	const page, totalAt = 4096, 120
	for _, at := range bytesOf(x, files) {
		if slices.ContainsFunc(out, func(s span) bool { return s.has(at.file, at.from) }) {
			continue
		}
		b := files[at.file]
		for from := at.from / page * page; from >= 0; from -= page {
			if bytes.HasPrefix(b[from:], []byte("DORM.REC")) {
				to := from + int64(binary.LittleEndian.Uint64(b[from+totalAt:]))
				if at.from < to {
					out = append(out, span{at.file, from, (to + page - 1) / page * page})
				}
				break
			}
		}
	}
	return out
}

// newFrame is what was written to the log between two states of its files.
func newFrame(before, after map[string][]byte) (scriptFrame, bool) {
	for _, name := range logFiles(after) {
		was, now := before[name], after[name]
		if was == nil {
			was = make([]byte, 64) // its own header is no frame
			copy(was, now)
		}
		was = append(was[:len(was):len(was)], make([]byte, max(0, len(now)-len(was)))...)
		at := 0
		for at < len(now) && was[at] == now[at] {
			at++
		}
		end := len(now)
		for end > at && was[end-1] == now[end-1] {
			end--
		}
		if at < end {
			return scriptFrame{name, int64(at), now[at:end]}, true
		}
	}
	return scriptFrame{}, false
}

// logFiles are the names of the log's files, the newest first.
func logFiles(files map[string][]byte) (names []string) {
	for name := range files {
		if strings.HasPrefix(name, walDir) && strings.HasSuffix(name, ".wal") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names
}

// frame is where the frame of a put lies, if it is still there.
func (r *scriptRun) frame(name string) (span, error) {
	f, ok := r.frames[name]
	b := r.files()[f.file]
	switch end := f.off + int64(len(f.b)); {
	case !ok:
		return span{}, malformed("it was never put")
	case end > int64(len(b)) || !bytes.Equal(b[f.off:f.off+40], f.b[:40]): // what follows is the boot
		return span{}, malformed("its frame is not in the log any more")
	default:
		return span{f.file, f.off, end}, nil
	}
}

// firstOf is the position of a record's first token (docs/format/record.md). Those of one put lie in any order.
func firstOf(files map[string][]byte, s span) uint32 {
	return binary.LittleEndian.Uint32(files[s.file][s.from+128:])
}

// flip turns a bit in the middle of a frame, or in the rows of a prompt's first record.
func (r *scriptRun) flip(a []string) error {
	var spans []span
	if a[1] == "frame" {
		s, err := r.frame(a[2])
		if err != nil {
			return err
		}
		spans = append(spans, s)
	} else if spans = recordsOf(r.chat(a[2]), r.files()); len(spans) == 0 {
		return malformed("it has no record")
	}
	files := r.files()
	at := slices.MinFunc(spans, func(a, b span) int { return cmp.Compare(firstOf(files, a), firstOf(files, b)) })
	f, err := r.d.Open(filepath.Join(r.d.Dir(), at.file), false)
	if err != nil {
		return malformed("%v", err)
	}
	defer f.Close()
	var b [1]byte
	off := (at.from + at.to) / 2
	if a[1] == "record" {
		off = at.from + 1024 // in its rows
	}
	_, err = f.ReadAt(b[:], off)
	if err == nil {
		b[0] ^= 4
		_, err = f.WriteAt(b[:], off)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return malformed("%v", err)
	}
	return nil
}

// cut cuts the power.
func (r *scriptRun) cut(a []string) error {
	if err := r.kill(); err != nil {
		return err
	}
	thing, back := a[1], a[len(a)-1]
	if thing == "any" {
		image, err := cutAndRebooted(r.d, r.rnd, r.dirs)
		return r.onto(image, err)
	}
	var loss crashfs.Loss
	lost := func(spans ...span) {
		loss.Sector = func(name string, off int64) bool {
			return slices.ContainsFunc(spans, func(s span) bool { return s.has(name, off) })
		}
	}
	what, name, _ := strings.Cut(thing, " ")
	switch what {
	case "":
		loss.All = back == ""
		if back != "" {
			loss.Back = func(name string) bool { return name == back }
		}
	case "unsynced":
		loss.All = true
	case "nothing":
	case "new":
		loss.Sector = func(name string, _ int64) bool { return strings.HasPrefix(name, segmentsDir) }
	case "copy":
		loss.Sector = func(name string, _ int64) bool { return strings.HasPrefix(name, segmentsDir) && !r.before[name] }
	case "first-sector":
		spans := recordsOf(r.chat(name), r.files())
		for i := range spans {
			spans[i].to = spans[i].from + 512
		}
		lost(spans...)
	case "log-page":
		s, err := r.frame(name)
		if err != nil {
			return err
		}
		s.from = s.from / 4096 * 4096
		s.to = s.from + 4096
		lost(s)
	default:
		lost(recordsOf(r.chat(thing), r.files())...)
	}
	image, n, err := r.d.Cut(loss, r.dirs.next())
	if err == nil && n == 0 && thing != "nothing" && (thing != "" || back != "") {
		return malformed("there is nothing to lose")
	}
	if err == nil {
		err = rebooted(image)
	}
	return r.onto(image, err)
}

func (r *scriptRun) expectNoBytes(a []string) error {
	if at := bytesOf(r.chat(a[1]), r.files()); len(at) > 0 {
		return fmt.Errorf("%d pieces are left, the first in %s at %d", len(at), at[0].file, at[0].from)
	}
	return nil
}

// The places at which a process dies: reports whether a call is the first one that is not done any more.

func dieUnnamed() func(op crashfs.Op) bool {
	return func(op crashfs.Op) bool { return op.Kind == "write" && strings.HasPrefix(op.Name, walDir) }
}

func dieDestroying() func(op crashfs.Op) bool {
	return func(op crashfs.Op) bool {
		return (op.Kind == "write" || op.Kind == "punch" || op.Kind == "remove") && strings.HasPrefix(op.Name, segmentsDir)
	}
}

func dieRotated() func(op crashfs.Op) bool {
	var renamed atomic.Bool
	return func(op crashfs.Op) bool {
		if op.Kind == "rename" && strings.HasPrefix(op.Name, walDir) {
			renamed.Store(true)
		}
		elsewhere := op.Changes() && !strings.HasPrefix(op.Name, walDir)
		return renamed.Load() && (elsewhere || op.Kind == "remove")
	}
}

func dieMoved() func(op crashfs.Op) bool {
	var made, copied, named atomic.Bool
	return func(op crashfs.Op) bool {
		switch {
		case op.Kind == "create" && strings.HasPrefix(op.Name, segmentsDir):
			made.Store(true)
		case op.Kind == "write" && strings.HasPrefix(op.Name, segmentsDir) && op.Len > 4096:
			copied.Store(made.Load())
		case op.Kind == "write" && strings.HasSuffix(op.Name, ".wal"): // the head of a new file is written before it has that name
			named.Store(copied.Load())
		}
		return named.Load() && (op.Kind == "sync" || op.Kind == "rename" || op.Kind == "create")
	}
}

// dying does what the process dies of.
func (r *scriptRun) dying(at func() func(op crashfs.Op) bool, do func() error) error {
	now := at()
	r.d.Before(func(op crashfs.Op) error {
		if now(op) {
			r.d.Crash()
			return crashfs.ErrCrashed
		}
		return nil
	})
	err := do()
	if !r.d.Crashed() {
		return malformed("it did not come to where it was to die: %v", err)
	}
	return r.kill()
}
