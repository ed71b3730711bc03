package script

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
)

// What scripts do to a disk, and how they find what they name on it: by its bytes.

const (
	logFolder      = "wal/"
	segmentsFolder = "segments/"
	pageBytes      = 4096
)

// newFrame is what was written to the log between two states of its files.
func newFrame(before, after map[string][]byte) (scriptFrame, bool) {
	for _, name := range crashtest.LogFiles(after) {
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

// frame is where the frame of a put lies, if it is still there.
func (r *scriptRun) frame(name string) (crashtest.Span, error) {
	f, ok := r.frames[r.id(name)]
	b := crashtest.FilesIn(r.d, logFolder)[f.file]
	switch end := f.off + int64(len(f.b)); {
	case !ok:
		return crashtest.Span{}, malformed("it was never put")
	case end > int64(len(b)) || !bytes.Equal(b[f.off:f.off+40], f.b[:40]): // what follows is the boot
		return crashtest.Span{}, malformed("its frame is not in the log any more")
	default:
		return crashtest.Span{File: f.file, From: f.off, To: end}, nil
	}
}

// write changes bytes, durably if no store is open.
func (r *scriptRun) write(name string, off int64, b []byte) error {
	f, err := r.d.Open(filepath.Join(r.d.Dir(), name), false)
	if err != nil {
		return malformed("%v", err)
	}
	defer f.Close()
	if _, err = f.WriteAt(b, off); err == nil && r.s == nil {
		err = f.Sync()
	}
	if err != nil {
		return malformed("%v", err)
	}
	return nil
}

// zeroHeaders clears the first pages of all segments.
func (r *scriptRun) zeroHeaders([]string) error {
	for name := range crashtest.Files(r.d) {
		if strings.HasPrefix(name, segmentsFolder) {
			if err := r.write(name, 0, make([]byte, pageBytes)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *scriptRun) harmFile(a []string) error {
	path := filepath.Join(r.d.Dir(), a[2])
	var err error
	switch a[1] {
	case "drop":
		err = errors.New("no file has such a name")
		for name := range crashtest.Files(r.d) {
			if strings.HasPrefix(name, a[2]) {
				path := filepath.Join(r.d.Dir(), name)
				err = errors.Join(r.d.Remove(path), r.d.SyncDir(filepath.Dir(path)))
			}
		}
	case "empty":
		var f vfs.File
		if f, err = r.d.Open(path, false); err == nil {
			err = errors.Join(f.Truncate(0), f.Sync(), f.Close())
		}
	default:
		b := crashtest.Files(r.d)[a[2]]
		if len(b) == 0 {
			return malformed("there is no such file")
		}
		return r.write(a[2], int64(len(b)/2), []byte{b[len(b)/2] ^ 4})
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
	image, err := r.loses(a)
	if r.went && a[1] == "" {
		return r.backWith(image, err)
	}
	if err == nil {
		err = crashtest.Reboot(image, image.Dir())
	}
	return r.onto(image, err)
}

// plug has the volume come back in the same boot; a store that is open lives on.
func (r *scriptRun) plug(a []string) error {
	image, err := r.loses(a)
	if err == nil && r.s != nil {
		return r.d.Plug(image)
	}
	return r.backWith(image, err)
}

func (r *scriptRun) backWith(image *crashfs.Disk, err error) error {
	if err == nil {
		image.SameBoot()
	}
	return r.onto(image, err)
}

func (r *scriptRun) unplug([]string) error {
	r.d.Unplug()
	return nil
}

// loses makes the disk that is left without what is lost.
func (r *scriptRun) loses(a []string) (*crashfs.Disk, error) {
	what, back := a[2], a[3]
	things := strings.Split(what, " and ")
	if slices.Contains(things, "any") {
		return r.d.PowerCut(r.rnd, r.dirs.Next())
	}
	var loss crashfs.Loss
	var lost []func(name string, off int64) bool
	for _, thing := range things {
		sector, all, err := r.loss(thing)
		if err != nil {
			return nil, err
		}
		loss.All = loss.All || all && back == ""
		lost = append(lost, sector)
	}
	loss.Sector = func(name string, off int64) bool {
		return slices.ContainsFunc(lost, func(lost func(string, int64) bool) bool { return lost(name, off) })
	}
	if back != "" {
		loss.Back = func(name string) bool { return name == back }
	}
	image, n, err := r.d.Cut(loss, r.dirs.Next())
	if err == nil && n == 0 && what != "nothing" && (what != "" || back != "") {
		return nil, malformed("there is nothing to lose")
	}
	return image, err
}

// loss reports which sectors a power cut takes with a thing, or whether all that is not durable goes.
func (r *scriptRun) loss(thing string) (sector func(name string, off int64) bool, all bool, err error) {
	in := func(spans ...crashtest.Span) func(name string, off int64) bool {
		return func(name string, off int64) bool {
			return slices.ContainsFunc(spans, func(s crashtest.Span) bool { return s.Has(name, off) })
		}
	}
	words := strings.Fields(thing + " . .")
	switch words[0] {
	case ".", "unsynced":
		return in(), true, nil
	case "nothing":
		return in(), false, nil
	case "new":
		return func(name string, _ int64) bool { return strings.HasPrefix(name, segmentsFolder) }, false, nil
	case "header":
		return func(name string, off int64) bool { return strings.HasPrefix(name, segmentsFolder) && off < pageBytes }, false, nil
	case "copy":
		return func(name string, _ int64) bool { return strings.HasPrefix(name, segmentsFolder) && !r.before[name] }, false, nil
	case "log-page":
		s, err := r.frame(words[1])
		s.From = s.From / pageBytes * pageBytes
		s.To = s.From + pageBytes
		return in(s), false, err
	}
	part, words := words[0], words[1:]
	if part != "first-sector" && part != "sectors" {
		part, words = "", append([]string{part}, words...)
	}
	files := crashtest.Files(r.d)
	spans := crashtest.RecordsOf(r.all(words[0]), files)
	if from, said := number(words[2]); said {
		spans = slices.DeleteFunc(spans, func(s crashtest.Span) bool { return crashtest.FirstOf(files, s) != uint32(from) })
	}
	whole := in(spans...)
	return func(name string, off int64) bool {
		first := slices.ContainsFunc(spans, func(s crashtest.Span) bool { return s.Has(name, off) && off < s.From+512 })
		return whole(name, off) && (part == "" || first || part == "sectors" && off%pageBytes < 512)
	}, false, nil
}
