package chat

import (
	"encoding/binary"
	"fmt"
	"math"
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

// encode is the frame of a turn that takes the place of others, with the turn's own frame.
func (o *aside) encode(turn []byte) []byte {
	var w out
	w.uint(uint64(o.id))
	list(&w, o.placed, func(f fact) { w.raw(f.encode()) })
	return append(w.b, turn...)
}
