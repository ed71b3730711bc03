package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// The journal is lines of text. An operation has a line when it begins and one when it has ended:
//
//	b ID OPERATION CHAT TOKENS NAME …   is about to begin
//	e ID                                is acknowledged
//	f ID                                was refused, as it may be; it may have been done in part
//	n COUNT                             restores that were compared since the last such line
//	! KIND TEXT                         something that must not be
//
// A line is one write(2): it is in the pipe before the next step, and its order with lines of others is that of the events.
const (
	lineOpening = "o" // the store is about to be opened
	lineReady   = "r" // it is open
)

// opKind is what an operation does.
type opKind string

const (
	opPut     opKind = "put" // or extend
	opDelete  opKind = "del"
	opScope   opKind = "scope"  // NAME is deleted, in all models
	opRetire  opKind = "retire" // the model of CHAT
	opRef     opKind = "ref"    // NAME
	opUnref   opKind = "unref"  // NAME
	opNote    opKind = "note"   // NAME, of so many bytes, on the model of CHAT
	opDurable opKind = "ckpt"   // what ends in a checkpoint
	opOther   opKind = "other"
)

// nameSync is the name of the other operation that makes durable what was acknowledged before it.
const nameSync = "sync"

// op is an operation of the journal. It took effect, if at all, between begin and end, which count lines.
type op struct {
	id         int
	kind       opKind
	chat, n    int
	name       string
	begin, end int
	acked      bool
	lost       bool // acknowledged, but a power cut may have taken it
	failed     bool // refused

	pinned   bool // of a ref
	priority uint8
	ttl      int // milliseconds; 0: for ever
	meta     int // bytes
}

// log is the writing end of a journal.
type log struct {
	out  io.Writer
	next atomic.Int64
	bufs sync.Pool
}

func newLog(out io.Writer, first int) *log {
	l := &log{out: out}
	l.next.Store(int64(first))
	l.bufs.New = func() any { b := make([]byte, 0, 256); return &b }
	return l
}

// line writes what fill appends.
func (l *log) line(fill func([]byte) []byte) {
	buf := l.bufs.Get().(*[]byte)
	defer l.bufs.Put(buf)
	*buf = append(fill((*buf)[:0]), '\n')
	if _, err := l.out.Write(*buf); err != nil {
		os.Exit(4) // whoever reads it is gone
	}
}

func (l *log) begin(o op) (id int) {
	id = int(l.next.Add(1))
	l.line(func(b []byte) []byte {
		b = append(b, "b "...)
		b = strconv.AppendInt(b, int64(id), 10)
		b = append(append(append(b, ' '), o.kind...), ' ')
		b = strconv.AppendInt(b, int64(o.chat), 10)
		b = strconv.AppendInt(append(b, ' '), int64(o.n), 10)
		if o.name != "" {
			b = append(append(b, ' '), o.name...)
		}
		if o.kind == opRef {
			b = fmt.Appendf(b, " %t %d %d %d", o.pinned, o.priority, o.ttl, o.meta)
		}
		return b
	})
	return id
}

func (l *log) end(id int, acked bool) {
	l.line(func(b []byte) []byte {
		if acked {
			b = append(b, "e "...)
		} else {
			b = append(b, "f "...)
		}
		return strconv.AppendInt(b, int64(id), 10)
	})
}

// compared notes restores.
func (l *log) compared(n int) { l.line(func(b []byte) []byte { return fmt.Appendf(b, "n %d", n) }) }

// complain notes what must not be.
func (l *log) complain(kind findingKind, format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " | ")
	l.line(func(b []byte) []byte { return fmt.Appendf(b, "! %s %.3000s", kind, text) })
}

// history is the journal of all lives of a store.
type history struct {
	ops      []*op // in the order in which they began
	clock    int   // lines so far
	lastID   int
	lines    []string
	restores int
	findings []finding // that the children wrote
	acks     int       // in the last life
}

// read adds what a child wrote until it was cut off. What was under way then has ended now, whatever it did.
func (h *history) read(lines []string) error {
	open := map[int]*op{}
	h.acks = 0
	for _, l := range lines {
		h.clock++
		h.lines = append(h.lines, l)
		f := strings.Fields(l)
		if len(f) < 2 {
			return fmt.Errorf("journal line %q", l)
		}
		number, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "b":
			o, err := parseOp(f)
			if err != nil {
				return fmt.Errorf("journal line %q: %w", l, err)
			}
			o.begin, o.end = h.clock, -1
			open[o.id] = o
			h.ops = append(h.ops, o)
			h.lastID = max(h.lastID, o.id)
		case "e", "f":
			o := open[number]
			if o == nil {
				return fmt.Errorf("journal line %q ends what did not begin", l)
			}
			o.end, o.acked, o.failed = h.clock, f[0] == "e", f[0] == "f"
			if o.acked {
				h.acks++
			}
			delete(open, number)
		case "n":
			h.restores += number
		case "!":
			h.findings = append(h.findings, finding{Kind: findingKind(f[1]), Text: "child: " + strings.Join(f[2:], " ")})
		}
	}
	h.clock++
	for _, o := range open {
		o.end = h.clock
	}
	return nil
}

func parseOp(f []string) (*op, error) {
	if len(f) < 5 {
		return nil, fmt.Errorf("too short")
	}
	o := &op{kind: opKind(f[2])}
	var err error
	for i, to := range map[int]*int{1: &o.id, 3: &o.chat, 4: &o.n} {
		if *to, err = strconv.Atoi(f[i]); err != nil {
			return nil, err
		}
	}
	if len(f) > 5 {
		o.name = f[5]
	}
	if o.kind == opRef {
		if len(f) != 10 {
			return nil, fmt.Errorf("%d fields", len(f))
		}
		_, err = fmt.Sscan(strings.Join(f[6:], " "), &o.pinned, &o.priority, &o.ttl, &o.meta)
	}
	return o, err
}

// powerLost notes that the power was lost. If the store was open in db.Process mode, what was acknowledged after the last
// checkpoint may be gone; deletions hold.
func (h *history) powerLost(process bool) {
	if !process {
		return
	}
	last := 0
	for _, o := range h.ops {
		if (o.kind == opDurable || o.name == nameSync) && o.acked {
			last = max(last, o.begin)
		}
	}
	for _, o := range h.ops {
		if o.end > last && (o.kind == opPut || o.kind == opRef || o.kind == opUnref || o.kind == opNote) {
			o.lost = o.acked
		}
	}
}

// tail is the end of the journal.
func (h *history) tail(n int) []string { return h.lines[max(0, len(h.lines)-n):] }
