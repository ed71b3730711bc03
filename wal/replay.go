package wal

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/damage"
)

// Frame is a frame that Replay read. Payload is valid only during the call.
type Frame struct {
	LSN     uint64
	Kind    uint8
	Payload []byte
	File    string
	Offset  int64
}

// Recovered is what Replay found. To go on, [Create] a file with an id above LastFile and a next LSN above LastLSN.
type Recovered struct {
	LastLSN  uint64 // of the last frame there is, or had been before the last file was made; 0 if none
	LastFile uint64 // id; 0 if there is no file
	Files    []FileInfo
	Damage   []*damage.Error // in reading order; what had been written, and durable or in this boot, and is lost
	Torn     bool            // the log ended in a torn frame: normal after a crash
}

// FileInfo describes one log file.
type FileInfo struct {
	ID       uint64
	FirstLSN uint64 // of the first frame behind the snapshot; 0 if it cannot be told
	LastLSN  uint64 // of the last good frame; FirstLSN-1 if there is none
	Bytes    int64  // allocated
	Torn     bool   // what follows the last good frame was never durable, as far as is known
}

// Replay reads the log files in order and hands every good frame to fn, in ascending LSN order. The snapshot at the head of
// each file (and the one inside it, where a recovery on a full disk went on in that file) comes as a frame of KindSnapshot
// that has the number of the last frame before it: fn sets its small state to it.
//
// What is no frame, and had been one, is in Damage, and reading goes on at the next good frame, so that the numbers that fn sees have a
// gap. A later frame shows it: one that was written when the missing one was known to be durable, or one of this boot of the system, in
// which a frame is written only behind a whole one. Where nothing shows it, a crash tore the log: Torn.
//
// Errors: what fn returned, as it is; [ErrForeign], [ErrVersion] for a file that this log must not touch; and those of
// opening and reading a file, because what a disk does not say now, and may say later, is not lost: of a block that it cannot
// read a [*damage.Error], unless the error is one that says nothing about the bytes ([vfs.Passing]). Replay changes nothing and
// needs no more memory than the longest frame.
func Replay(o Options, fn func(Frame) error) (Recovered, error) {
	if err := o.Validate(); err != nil {
		return Recovered{}, err
	}
	o = o.withDefaults()
	p := replay{o: o, fn: fn, report: func(e *damage.Error) { o.Logger.Error("log damaged", "error", e) }}
	err := p.run()
	return p.rec, err
}

// replay is one run over all files.
type replay struct {
	o       Options
	fn      func(Frame) error
	report  func(*damage.Error)
	torn    func(*damage.Error) // called for the first bad byte of a torn end; may be nil
	read    func(bytes int64)   // called when a file is done; may be nil
	lenient bool                // blocks that cannot be read are damage, too

	rec    Recovered
	next   uint64 // the LSN that the next frame must have; 0 if unknown
	gap    bool   // damage was reported that accounts for frames missing before the next one
	end    int64  // of the last good frame of the last file
	endOf  string // that file
	prevID uint64
}

func (p *replay) damage(e *damage.Error) {
	p.rec.Damage = append(p.rec.Damage, e)
	p.report(e)
}

func (p *replay) run() error {
	ids, err := p.o.list()
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	next, err := openLogFile(p.o, ids[0], p.lenient)
	if err != nil {
		return err
	}
	for i := range ids {
		f := next
		next = nil
		if i+1 < len(ids) {
			if next, err = openLogFile(p.o, ids[i+1], p.lenient); err != nil {
				f.Close()
				return err
			}
		}
		err := p.file(f, next)
		for _, e := range f.unreadable {
			p.damage(e)
		}
		f.Close()
		if err != nil {
			if next != nil {
				next.Close()
			}
			return err
		}
	}
	p.rec.LastFile = ids[len(ids)-1]
	return nil
}

// file replays f; next is the file after it, or nil.
func (p *replay) file(f, next *logFile) error {
	p.join(f)
	info := FileInfo{ID: f.id, FirstLSN: f.first}
	if st, err := f.f.Stat(); err == nil {
		info.Bytes = st.Allocated
	}
	off, err := p.frames(f, next, &info)
	p.end, p.endOf, p.prevID = off, f.name, f.id
	if p.next > 0 {
		p.rec.LastLSN = p.next - 1
		info.LastLSN = p.next - 1
	}
	p.rec.Files = append(p.rec.Files, info)
	p.rec.Torn = info.Torn
	if p.read != nil {
		p.read(f.size)
	}
	return err
}

// join compares the start of f with the end of the file before it.
func (p *replay) join(f *logFile) {
	lost := "" // frames that neither file holds
	if p.next != 0 && f.first > p.next {
		lost = fmt.Sprintf("frames %d to %d", p.next, f.first-1)
	}
	switch {
	case p.prevID != 0 && f.id != p.prevID+1:
		d := damage.New(p.o.path(p.prevID+1), 0, "log", fmt.Sprintf("files %d to %d", p.prevID+1, f.id-1), "none")
		if lost != "" {
			d.Expected += ", with " + lost
		}
		p.damage(d)
	case lost != "" && !p.gap:
		p.damage(damage.New(p.endOf, p.end, "log", lost, "the end of the file"))
	case p.next != 0 && f.first != 0 && f.first < p.next:
		p.damage(damage.New(f.name, 0, "first LSN", p.next, f.first))
	}
	if f.headErr != nil {
		p.damage(f.headErr)
	}
	p.gap = f.first == 0
	p.next = max(p.next, f.first)
}

// frames hands the frames of f to fn. It returns the end of the last good one.
func (p *replay) frames(f, next *logFile, info *FileInfo) (end int64, err error) {
	off := int64(headerBytes)
	end = off
	evidence := f.evidence(next, p.o.Boot)
	for {
		fr, bad := f.frame(off)
		var reserved, torn, found bool
		if bad != nil && off > headerBytes { // the head frame was durable before the file got its name
			reserved = f.nonzero(off) < 0
			torn = !reserved && evidence(off, p.next) < p.next
		}
		var whole uint64
		if bad != nil && !reserved && !torn {
			whole = evidence(off, p.next)
			fr, found = f.seek(off + 8) // last: the payload lies in the reader's window, and evidence reads on
		}
		switch {
		case f.err != nil: // that, and not what zeros say
			return end, f.err
		case reserved:
			if next == nil && f.size-off < tailBytes {
				p.tear(info, damage.New(f.name, off, "log", "zeros behind the last frame", "the end of the file"))
			}
			return end, nil
		case torn:
			p.tear(info, bad)
			return end, nil
		case bad != nil:
			p.damage(bad)
			p.gap = true
			if !found {
				return end, nil
			}
			if p.next != 0 && fr.before() >= p.next && fr.before() > whole {
				p.next = max(p.next, whole+1)
				p.tear(info, bad) // of the frames that are missing here, not all had been whole
				return end, nil
			}
		}
		off = fr.end()
		if next != nil && next.first != 0 && fr.kind != KindSnapshot && fr.lsn >= next.first {
			// The next file was started without it. Frames that follow a torn one are such; a whole one should not be.
			if bad == nil {
				p.damage(damage.New(f.name, fr.start(), "frame LSN", fmt.Sprintf("less than %d, where the next file starts", next.first), fr.lsn))
			}
			return end, nil
		}
		if err := p.hand(f, fr); err != nil {
			return end, err
		}
		end = off
	}
}

// tear notes where the log ends in a way that only a crash explains, or damage to what was not yet durable.
func (p *replay) tear(info *FileInfo, bad *damage.Error) {
	info.Torn = true
	p.o.Logger.Info("the log's end is torn", "offset", bad.Offset, "lsn", p.next, "found", bad)
	if p.torn != nil {
		p.torn(bad)
	}
}

// hand checks the order of a good frame and gives it to fn.
func (p *replay) hand(f *logFile, fr frame) error {
	wrong := func(what string, expected any, found any) {
		p.damage(damage.New(f.name, fr.start(), what, expected, found))
	}
	head := fr.start() == headerBytes
	if head && fr.kind != KindSnapshot {
		wrong("frame kind", "a snapshot at the head of the file", fr.kind)
		return nil
	}
	if head {
		if p.next != 0 && fr.lsn+1 != p.next {
			wrong("snapshot LSN", p.next-1, fr.lsn)
			return nil
		}
		p.next = fr.lsn + 1
	} else {
		lsn := fr.lsn
		if fr.kind == KindSnapshot { // a recovery went on here: it takes no number
			lsn++
		}
		if lsn < p.next {
			wrong("frame LSN", p.next, lsn)
			return nil
		}
		if lsn > p.next && !p.gap {
			wrong("frame LSN", p.next, lsn)
		}
		p.gap = false
		p.next = fr.lsn + 1
	}
	return p.fn(Frame{LSN: fr.lsn, Kind: fr.kind, Payload: fr.payload, File: f.name, Offset: fr.start()})
}

// evidence returns a function that says up to which number frames had been whole, as what is later than off shows, where the frame lsn
// should be: the next file starts behind that, since a file is synced before the next one gets its name; or a later frame of the file
// proves it. If the next file starts with lsn, the log was recovered there: it had been torn.
func (f *logFile) evidence(next *logFile, boot uint64) func(off int64, lsn uint64) uint64 {
	known := false
	var proven uint64
	return func(off int64, lsn uint64) uint64 {
		if next != nil && next.id == f.id+1 && next.first != 0 {
			return next.first - 1
		}
		if !known {
			known, proven = true, f.proven(off, boot)
		}
		if f.goesOn(off, lsn) {
			return max(proven, lsn)
		}
		return proven
	}
}
