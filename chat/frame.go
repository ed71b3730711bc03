package chat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Kinds of frames in a conversation's file (docs/format/conversation.md).
const (
	headFrame   = 1 // first, and once
	factFrame   = 2 // a call of SetFact
	turnFrame   = 3 // a turn that was committed
	rewindFrame = 4
	metaFrame   = 5
	placedFrame = 6 // a fact of a log that was rewritten
	placeFrame  = 7 // facts that were set are placed now, or removed

	insteadFrame = 8 // a turn that was committed in the place of others
)

// head is the first frame: whose file it is.
type head struct {
	id          string
	user        string
	tokenizer   kv.Hash
	fingerprint kv.Fingerprint
	created     time.Time
	system      []kv.Token
	lastTurn    TurnID // numbers that were given, so that none is given twice
	lastFact    uint64
}

// turnRecord is a turn as its frame has it.
type turnRecord struct {
	part    part
	tokens  []kv.Token
	evicted []TurnID // turns that went for it
}

// formatVersion is that of the frames. Another one, and kinds that this release does not know, are refused.
const formatVersion = 1

var errFrame = fmt.Errorf("%w: frame of a conversation", db.ErrCorrupt)

// out writes the fields of a frame: numbers as varints, strings and lists with their length before them.
type out struct{ b []byte }

func (w *out) uint(n uint64)       { w.b = binary.AppendUvarint(w.b, n) }
func (w *out) int(n int)           { w.uint(uint64(n)) }
func (w *out) bytes(b []byte)      { w.int(len(b)); w.b = append(w.b, b...) }
func (w *out) raw(b []byte)        { w.b = append(w.b, b...) }
func (w *out) time(t time.Time)    { w.b = binary.AppendVarint(w.b, t.UnixMilli()) }
func (w *out) tokens(t []kv.Token) { list(w, t, func(t kv.Token) { w.uint(uint64(uint32(t))) }) }

func (w *out) view(v []kv.Range) { list(w, v, func(r kv.Range) { w.int(r.Start); w.int(r.Len()) }) }

func list[T any](w *out, l []T, each func(T)) {
	w.int(len(l))
	for _, x := range l {
		each(x)
	}
}

// in reads the fields of a frame. The first error stays, and what is read after it is zero.
type in struct {
	b   []byte
	err error
}

func (r *in) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errFrame, what)
	}
	r.b = nil
}

func (r *in) uint() uint64 {
	n, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.fail("number expected")
		return 0
	}
	r.b = r.b[k:]
	return n
}

func (r *in) int() int {
	n := r.uint()
	if n > math.MaxInt32 {
		r.fail(fmt.Sprintf("number %d is too large", n))
		return 0
	}
	return int(n)
}

// count reads the length of a list whose items take at least one byte each.
func (r *in) count() int {
	n := r.int()
	if n > len(r.b) {
		r.fail(fmt.Sprintf("%d items in %d bytes", n, len(r.b)))
		return 0
	}
	return n
}

func (r *in) raw(b []byte) {
	if len(r.b) < len(b) {
		r.fail("too short")
		return
	}
	r.b = r.b[copy(b, r.b):]
}

func (r *in) bytes() []byte {
	b := make([]byte, r.count())
	r.raw(b)
	if len(b) == 0 {
		return nil
	}
	return b
}

func (r *in) time() time.Time {
	n, k := binary.Varint(r.b)
	if k <= 0 {
		r.fail("time expected")
		return time.Time{}
	}
	r.b = r.b[k:]
	return time.UnixMilli(n).UTC()
}

func (r *in) tokens() []kv.Token {
	return items(r, func() kv.Token {
		n := r.uint()
		if n > math.MaxUint32 {
			r.fail(fmt.Sprintf("token %d", n))
		}
		return kv.Token(uint32(n))
	})
}

func (r *in) view() []kv.Range {
	return items(r, func() kv.Range {
		start := r.int()
		return kv.Range{Start: start, End: start + r.int()}
	})
}

func items[T any](r *in, each func() T) []T {
	n := r.count()
	if n == 0 {
		return nil
	}
	l := make([]T, 0, n)
	for range n {
		l = append(l, each())
		if r.err != nil {
			return nil
		}
	}
	return l
}

// end returns the error, if not all was read, too.
func (r *in) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail(fmt.Sprintf("%d bytes too many", len(r.b)))
	}
	return r.err
}

func (h *head) encode() []byte {
	var w out
	w.uint(formatVersion)
	w.bytes([]byte(h.id))
	w.bytes([]byte(h.user))
	w.raw(h.tokenizer[:])
	w.raw(h.fingerprint[:])
	w.time(h.created)
	w.tokens(h.system)
	w.uint(uint64(h.lastTurn))
	w.uint(h.lastFact)
	return w.b
}

func decodeHead(b []byte) (h head, err error) {
	r := in{b: b}
	if v := r.uint(); r.err == nil && v != formatVersion {
		return h, fmt.Errorf("%w: frames of a conversation of version %d, this release knows %d", db.ErrVersion, v, formatVersion)
	}
	h.id, h.user = string(r.bytes()), string(r.bytes())
	r.raw(h.tokenizer[:])
	r.raw(h.fingerprint[:])
	h.created = r.time()
	h.system = r.tokens()
	h.lastTurn, h.lastFact = TurnID(r.uint()), r.uint()
	return h, r.end()
}

func (f *fact) encode() []byte {
	var w out
	w.uint(f.id)
	w.bytes([]byte(f.name))
	w.tokens(f.tokens)
	return w.b
}

func (r *in) fact() fact { return fact{r.uint(), string(r.bytes()), r.tokens()} }

func decodeFact(b []byte) (f fact, err error) {
	r := in{b: b}
	f = r.fact()
	return f, r.end()
}

// encodePlaced is a fact's part of the log.
func encodePlaced(p *part, tokens []kv.Token) []byte {
	f := fact{p.id, p.name, tokens}
	w := out{b: f.encode()}
	w.view(p.view)
	return append(w.b, gone(p))
}

func decodePlaced(b []byte) (p part, tokens []kv.Token, err error) {
	r := in{b: b}
	p.kind, p.id, p.name = factPart, r.uint(), string(r.bytes())
	tokens = r.tokens()
	p.view = r.view()
	p.gone = r.gone()
	return p, tokens, r.end()
}

func (r *in) gone() bool {
	n := r.uint()
	if n > 1 {
		r.fail(fmt.Sprintf("0 or 1 expected, found %d", n))
	}
	return n == 1
}

func (t *turnRecord) encode() []byte {
	var w out
	p := &t.part
	w.uint(p.id)
	w.time(p.turn.at)
	list(&w, t.evicted, func(id TurnID) { w.uint(uint64(id)) })
	w.view(p.view)
	w.int(p.turn.user)
	w.tokens(t.tokens)
	list(&w, p.turn.spans, func(s kv.Span) { w.int(s.Start); w.int(s.Len); w.raw(s.Hash[:]) })
	w.uint(uint64(uint32(int32(p.turn.priority))))
	w.bytes(p.turn.meta)
	list(&w, p.turn.embedding, func(f float32) { w.raw(binary.LittleEndian.AppendUint32(nil, math.Float32bits(f))) })
	return append(w.b, gone(p))
}

func gone(p *part) byte {
	if p.gone {
		return 1
	}
	return 0
}

func decodeTurn(b []byte) (t turnRecord, err error) {
	r := in{b: b}
	p := &t.part
	p.kind, p.id, p.turn.at = turnPart, r.uint(), r.time()
	t.evicted = items(&r, func() TurnID { return TurnID(r.uint()) })
	p.view = r.view()
	p.turn.user = r.int()
	t.tokens = r.tokens()
	p.turn.spans = items(&r, func() (s kv.Span) {
		s.Start, s.Len = r.int(), r.int()
		r.raw(s.Hash[:])
		return s
	})
	p.turn.priority = int(int32(uint32(r.uint())))
	p.turn.meta = r.bytes()
	p.turn.embedding = items(&r, func() float32 {
		var b [4]byte
		r.raw(b[:])
		return math.Float32frombits(binary.LittleEndian.Uint32(b[:]))
	})
	p.gone = r.gone()
	if p.turn.user > len(t.tokens) {
		r.fail(fmt.Sprintf("a message of %d tokens in a turn of %d", p.turn.user, len(t.tokens)))
	}
	return t, r.end()
}

// replay builds a log from the frames of a file.
func replay(scope func(id string) string, frames []db.SessionFrame) (h head, l *log, err error) {
	for i, f := range frames {
		if (i == 0) != (f.Kind == headFrame) {
			return h, nil, fmt.Errorf("%w: number %d is of kind %d", errFrame, i, f.Kind)
		}
		if i == 0 {
			if h, err = decodeHead(f.Body); err == nil {
				l = newLog(scope(h.id), h.user, h.system)
				l.lastTurn, l.lastFact = h.lastTurn, h.lastFact
			}
		} else {
			err = l.apply(f)
		}
		if err != nil {
			return h, nil, fmt.Errorf("frame %d: %w", i, err)
		}
	}
	if l == nil {
		return h, nil, fmt.Errorf("%w: there is none", errFrame)
	}
	return h, l, nil
}

// apply does what a frame says.
func (l *log) apply(f db.SessionFrame) error {
	switch f.Kind {
	case factFrame:
		x, err := decodeFact(f.Body)
		if err == nil {
			l.set(x)
		}
		return err
	case placedFrame:
		p, tokens, err := decodePlaced(f.Body)
		if err == nil {
			err = l.sees(&p)
		}
		if err == nil {
			l.lastFact = max(l.lastFact, p.id)
			l.place(p, tokens)
		}
		return err
	case turnFrame:
		t, err := decodeTurn(f.Body)
		if err != nil {
			return err
		}
		return l.applyTurn(&t)
	case rewindFrame:
		r := in{b: f.Body}
		id := TurnID(r.uint())
		if err := r.end(); err != nil {
			return err
		}
		i, err := l.turn(id)
		if err != nil {
			return notThere(err)
		}
		l.cut(i)
		return nil
	case insteadFrame:
		return l.applyInstead(f.Body)
	case placeFrame:
		r := in{b: f.Body}
		n := r.int()
		if err := r.end(); err != nil || n != len(l.pending) {
			return errors.Join(err, fmt.Errorf("%w: %d facts are placed, and %d were set", errFrame, n, len(l.pending)))
		}
		l.settle(l.pending)
		l.pending = nil
		return nil
	case metaFrame:
		l.meta = slices.Clone(f.Body)
		return nil
	}
	return fmt.Errorf("%w: a frame of a conversation of kind %d, which this release does not know", db.ErrVersion, f.Kind)
}

// notThere is the error of a frame that takes back a turn which is not in the log.
func notThere(err error) error { return fmt.Errorf("%w: %w", errFrame, err) }

func (l *log) applyTurn(t *turnRecord) error {
	l.evict(t.evicted)
	p := t.part
	if err := l.sees(&p); err != nil {
		return err
	}
	at := 0
	for _, s := range p.turn.spans {
		if s.Len < 1 || s.Start < at || s.Start+s.Len > len(t.tokens) {
			return fmt.Errorf("%w: turn %d has a span of %d tokens at %d", errFrame, p.id, s.Len, s.Start)
		}
		at = s.Start + s.Len
	}
	if _, err := l.turn(TurnID(p.id)); err == nil || TurnID(p.id) == 0 {
		return fmt.Errorf("%w: turn %d is there twice", errFrame, p.id)
	}
	l.lastTurn = max(l.lastTurn, TurnID(p.id))
	l.place(p, t.tokens)
	return nil
}

// sees checks the view of a part that is to be placed: it ends where the log does.
func (l *log) sees(p *part) error {
	n := len(l.tokens)
	if v := p.view; !slices.Equal(v, merged(v)) || len(v) > 0 && v[len(v)-1].End != n || len(v) == 0 && n > 0 {
		return fmt.Errorf("%w: part %d of the log was seen in the view %v of %d tokens", errFrame, p.id, v, n)
	}
	return nil
}

// frames is a file that says what the log is: the head, then what is in it and what waits. Of the turns in keep it says that they are not
// evicted.
func (l *log) frames(h head, keep []TurnID) []db.SessionFrame {
	h.lastTurn, h.lastFact = l.lastTurn, l.lastFact
	fs := []db.SessionFrame{{Kind: headFrame, Body: h.encode()}}
	if l.meta != nil {
		fs = append(fs, db.SessionFrame{Kind: metaFrame, Body: l.meta})
	}
	for i := range l.parts {
		p := &l.parts[i]
		tokens := l.tokens[p.start:p.end]
		switch p.kind {
		case factPart:
			fs = append(fs, db.SessionFrame{Kind: placedFrame, Body: encodePlaced(p, tokens)})
		case turnPart:
			t := turnRecord{part: *p, tokens: tokens}
			t.part.gone = p.gone && !slices.Contains(keep, TurnID(p.id))
			fs = append(fs, db.SessionFrame{Kind: turnFrame, Body: t.encode()})
		}
	}
	for _, f := range l.pending {
		fs = append(fs, db.SessionFrame{Kind: factFrame, Body: f.encode()})
	}
	return fs
}
