package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Options say how a conversation is held. The zero value is a conversation without a system prompt.
type Options struct {
	// System is the system prompt. That of a conversation that exists is kept if it is nil, and changed if it is another one: the next turn
	// begins with a rewrite.
	System []kv.Token
	// User is whose the system prompt is: its rows are shared by all conversations of one user, and go with the last of them ([Host.Delete]).
	// Empty: by all. It is fixed when a conversation is made.
	User string

	// Facts is how many tokens the system prompt and the facts may take, Ring how many the turns in the cache may. 0: 512 and 1,536, less if
	// the model was trained for less, or the runtime has less than twice as many cells. Where they are smaller than when the conversation was held last, turns are evicted, and Open returns
	// [ErrFactsFull] if the facts have no room.
	Facts   int
	Ring    int
	Reserve int    // tokens of an answer that are kept free when a turn begins. 0: 512, or a third of Ring if that is less
	Log     int    // tokens that the log may have before it is rewritten, what was hidden or evicted included. 0: four times Facts and Ring
	Policy  Policy // which turns a turn attends to. nil: All
	Merge   MergeFunc
}

// MergeFunc makes fewer or shorter facts of those that there are, whose tokens may be at most room afterwards. It is called by SetFact when
// facts no longer fit, and may use the host's other conversations. A fact that it returns under a known name with other tokens replaces it;
// one whose name it leaves out is removed.
type MergeFunc func(ctx context.Context, facts []Fact, room int) ([]Fact, error)

// Fact is a named run of tokens that every turn attends to.
type Fact struct {
	Name   string
	Tokens []kv.Token
}

// maxTokens bounds Facts and Ring.
const maxTokens = kv.MaxTokens / 16

func (o *Options) defaults(lim kv.Limits) error {
	facts, ring := 512, 1536
	if lim.Trained > 0 {
		facts = max(1, min(facts, lim.Trained/4))
		ring = max(2, min(ring, lim.Trained-max(o.Facts, facts)))
	}
	if half := lim.Cells / 2; lim.Cells > 0 { // the other half is a rewrite's
		facts = max(1, min(facts, half/4, lim.Cells-max(0, o.Ring)))
		ring = max(2, min(ring, max(half/4, half-max(o.Facts, facts))))
	}
	for _, f := range []struct {
		name string
		n    *int
		def  int
	}{{"Facts", &o.Facts, facts}, {"Ring", &o.Ring, ring}, {"Reserve", &o.Reserve, 0}} {
		if *f.n < 0 || *f.n > maxTokens {
			return fmt.Errorf("%w: %s is %d: at most %d", ErrOptions, f.name, *f.n, maxTokens)
		}
		if *f.n == 0 {
			*f.n = f.def
		}
	}
	if o.Reserve == 0 {
		o.Reserve = max(1, min(512, o.Ring/3))
	}
	if o.Reserve >= o.Ring {
		return fmt.Errorf("%w: Reserve is %d, and Ring, which has room for the message, too, %d", ErrOptions, o.Reserve, o.Ring)
	}
	for _, most := range []struct {
		n    int
		what string
	}{{lim.Trained, "the model was trained for %d positions"}, {lim.Cells, "the runtime was made with %d cells"}} {
		if most.n > 0 && o.Facts+o.Ring > most.n {
			return fmt.Errorf("%w: Facts is %d and Ring %d, and "+most.what, ErrOptions, o.Facts, o.Ring, most.n)
		}
	}
	if len(o.System) > o.Facts {
		return fmt.Errorf("%w: a system prompt of %d tokens, and Facts is %d", ErrOptions, len(o.System), o.Facts)
	}
	switch {
	case o.Log < 0:
		return fmt.Errorf("%w: Log is %d", ErrOptions, o.Log)
	case o.Log == 0:
		o.Log = 4 * (o.Facts + o.Ring)
	}
	o.Log = min(o.Log, kv.MaxTokens/2)
	if o.Policy == nil {
		o.Policy = All
	}
	o.System = slices.Clone(o.System)
	return nil
}

// Conversation is a conversation that is open. One turn of it is open at a time.
type Conversation struct {
	h    *Host
	id   string
	o    Options
	file *db.Session
	head head
	log  *log

	evicted []TurnID // turns that were evicted since the last turn was committed

	seq      int  // holds the rows of the log that are not gone; -1: they are not in the cache
	rows     int  // leading tokens of the log that were computed; they are stored or in seq
	stored   int  // leading tokens of the log whose rows are in the store
	hole     int  // where rows begin that are neither in seq nor in the store: nothing from here on can be stored. There is none: noHole
	bytes    int  // in the file, about
	fold     int  // with so many bytes it is written anew
	stepping bool // the rewrite is being computed,
	urgent   bool // and somebody waits for it
	turn     *Turn
	old      *aside // what the open turn takes the place of; nil: nothing
	re       *rewriting
	rewrite  string // why the log is to be rewritten; empty: it need not be
	unstored bool   // the rows of a new log are not stored yet
	failed   error  // of the last rewrite in the background
	used     uint64
	stats    Stats
	closed   bool
}

// Open opens a conversation, or makes it. What a process that was killed had committed is there, and nothing else.
//
// It returns [ErrOpen] if it is open already, in this host or in another one of the store, [ErrTokenizer] if it was held with another tokenizer, and the store's error, with file and
// offset, if the file is damaged: the file is left as it is then.
func (h *Host) Open(ctx context.Context, id string, o Options) (*Conversation, error) {
	if err := o.defaults(h.lim); err != nil {
		return nil, err
	}
	if id == "" || len(Scope(id)) > db.MaxRefName {
		return nil, fmt.Errorf("%w: a conversation needs a name, of at most %d bytes", ErrOptions, db.MaxRefName-len(Scope("")))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.check(o.System); err != nil {
		return nil, err
	}
	if h.closed {
		return nil, ErrClosed
	}
	if h.open[id] != nil {
		return nil, fmt.Errorf("%w: %q", ErrOpen, id)
	}
	file, err := h.store.OpenSession(ctx, Scope(id))
	if errors.Is(err, db.ErrSessionOpen) {
		return nil, fmt.Errorf("%w: %q: %w", ErrOpen, id, err)
	}
	if err != nil {
		return nil, err
	}
	c := &Conversation{h: h, id: id, o: o, file: file, seq: -1, hole: noHole, fold: foldBytes}
	if err := c.read(ctx); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	h.open[id] = c
	c.touch()
	return c, nil
}

// read builds the log from the file, or begins the file.
func (c *Conversation) read(ctx context.Context) error {
	desc := c.h.model.Descriptor()
	frames, err := db.Collect(c.file.Frames(ctx))
	if err != nil {
		return err
	}
	for _, f := range frames {
		c.bytes += frameBytes(f.Body)
	}
	if len(frames) == 0 {
		c.head = head{id: c.id, user: c.o.User, tokenizer: desc.Tokenizer, fingerprint: c.h.model.Fingerprint(), created: now(), system: slices.Clone(c.o.System)}
		c.log = newLog(Scope(c.id), c.o.User, c.head.system)
		return c.note(ctx, headFrame, c.head.encode())
	}
	if c.head, c.log, err = replay(Scope, frames); err != nil {
		return fmt.Errorf("conversation %q: %w", c.id, err)
	}
	switch {
	case c.head.id != c.id:
		return fmt.Errorf("conversation %q: %w: it is that of %q", c.id, errFrame, c.head.id)
	case c.head.tokenizer != desc.Tokenizer:
		return fmt.Errorf("%w: %q", ErrTokenizer, c.id)
	case c.head.fingerprint != c.h.model.Fingerprint():
		c.rewrite = "other weights"
	case c.o.System != nil && !slices.Equal(c.o.System, c.head.system):
		c.rewrite = "another system prompt"
	}
	if c.o.System == nil {
		c.o.System = slices.Clone(c.head.system)
	}
	return c.fits(c.o.System, c.log.coming())
}

// fits returns ErrFactsFull if the system prompt and the facts take more than Options.Facts.
func (c *Conversation) fits(system []kv.Token, facts []fact) error {
	n := 0
	for _, f := range facts {
		n += len(f.tokens)
	}
	if len(system)+n > c.o.Facts {
		return fmt.Errorf("%w: a system prompt of %d tokens and facts of %d, and Facts is %d", ErrFactsFull, len(system), n, c.o.Facts)
	}
	return nil
}

// ID is the name that the conversation was opened under.
func (c *Conversation) ID() string { return c.id }

// System is the system prompt.
func (c *Conversation) System() []kv.Token {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return slices.Clone(c.o.System)
}

func (c *Conversation) touch() {
	c.h.clock++
	c.used = c.h.clock
}

// enter locks the host for a method that needs the conversation as it is between turns.
func (c *Conversation) enter(idle bool) (leave func(), err error) {
	c.h.mu.Lock()
	switch {
	case c.closed || c.h.closed:
		err = ErrClosed
	case idle && c.turn != nil:
		err = ErrTurnOpen
	default:
		c.touch()
		return c.h.mu.Unlock, nil
	}
	c.h.mu.Unlock()
	return nil, err
}

// Close closes the conversation; an open turn is aborted.
func (c *Conversation) Close() error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if c.closed {
		return nil
	}
	return c.close()
}

func (c *Conversation) close() error {
	if c.turn != nil {
		c.turn.end()
	}
	c.park()
	c.closed = true
	delete(c.h.open, c.id)
	return c.file.Close()
}

// park takes the rows out of the cache. They are in the store then, but for what a Store that failed has left out.
func (c *Conversation) park() {
	c.dropRewrite()
	c.unload()
}

// unload is park without the new log.
func (c *Conversation) unload() {
	if c.seq < 0 {
		return
	}
	c.store(context.Background())
	c.h.release(c.seq)
	c.seq, c.rows, c.hole = -1, c.stored, noHole
}

// give frees some of the cache for what the conversation itself is doing, and says whether there was something. A turn goes before the
// rewrite, and a rewrite that somebody waits for before the old rows.
func (c *Conversation) give() bool {
	switch {
	case !c.stepping && c.re != nil:
		c.dropRewrite()
	case c.urgent && c.seq >= 0:
		c.unload()
	default:
		return false
	}
	return true
}

// cells estimates what the conversation takes of the cache.
func (c *Conversation) cells() (n int) {
	if c.seq >= 0 {
		n = length(clipped(c.log.live(), 0, c.rows))
	}
	if c.re != nil {
		n += c.re.rows
	}
	if t := c.turn; t != nil {
		n += t.rows
		for _, b := range t.branches {
			n += b.rows
		}
	}
	return n
}

// SetSystem changes the system prompt. The log is rewritten before it returns; if that fails, the next turn begins with it.
func (c *Conversation) SetSystem(ctx context.Context, tokens []kv.Token) error {
	leave, err := c.enter(true)
	if err != nil {
		return err
	}
	defer leave()
	if err := errors.Join(c.h.check(tokens), ctx.Err()); err != nil {
		return err
	}
	if err := c.fits(tokens, c.log.coming()); err != nil {
		return err
	}
	c.dropRewrite()
	c.o.System, c.rewrite = slices.Clone(tokens), "another system prompt"
	if err := c.rewriteNow(ctx); err != nil {
		return err
	}
	return c.store(ctx)
}

// Rewind takes back a turn and all that came after it. Facts stay. It is durable when Rewind returns. To edit a message, or to answer it anew, use
// [BeginOptions].Instead: there the old turn stays until the new one is committed.
func (c *Conversation) Rewind(ctx context.Context, id TurnID) error {
	leave, err := c.enter(true)
	if err != nil {
		return err
	}
	defer leave()
	i, err := c.log.turn(id)
	if err != nil {
		return err
	}
	var w out
	w.uint(uint64(id))
	if err := c.note(ctx, rewindFrame, w.b); err != nil {
		return err
	}
	c.takeBack(i)
	return nil
}

// Forget erases one turn: its tokens are in no view, no log and no row any more. The log is rewritten and the store synced before it returns.
// One that was evicted or rewound erases the same; repeated after an error it finishes what is left.
func (c *Conversation) Forget(ctx context.Context, id TurnID) error {
	leave, err := c.enter(true)
	if err != nil {
		return err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	i, err := c.log.turn(id)
	if err != nil && (id == 0 || id > c.log.lastTurn) {
		return err
	}
	c.dropRewrite()
	if err == nil && !c.log.parts[i].gone { // should the rewrite fail, it is evicted at least
		c.log.parts[i].gone = true
		c.evicted = append(c.evicted, id)
	}
	c.rewrite = "a turn is forgotten"
	if err := c.rewriteNow(ctx); err != nil {
		return err
	}
	c.h.clear()
	if err := c.store(ctx); err != nil {
		return err
	}
	return c.h.store.Sync(ctx)
}

// MaxMeta is how many bytes of the caller's a conversation keeps, a turn, and a name.
const MaxMeta = 64 << 10

// SetMeta keeps up to MaxMeta bytes of the caller's with the conversation: a title, say.
func (c *Conversation) SetMeta(ctx context.Context, meta []byte) error {
	if len(meta) > MaxMeta {
		return fmt.Errorf("%w: %d bytes of meta, at most %d", ErrOptions, len(meta), MaxMeta)
	}
	leave, err := c.enter(false)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.note(ctx, metaFrame, meta); err != nil {
		return err
	}
	c.log.meta = slices.Clone(meta)
	return nil
}

// Meta is what SetMeta was given.
func (c *Conversation) Meta() []byte {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	return slices.Clone(c.log.meta)
}
