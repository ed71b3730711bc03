package chat_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/internal/hashed"
	"github.com/dormousekv/dormouse/kv"
)

// Two goroutines hold a conversation each, others call what a host has, and the log is rewritten behind them: each gets the answers that it
// gets alone. Run it with -race.
func TestTogether(t *testing.T) {
	system := tokens(1, 20)
	o := chat.Options{System: system, Facts: 40, Ring: 60, Reserve: 10, Policy: chat.Recent(1)}
	talk := func(c *chat.Conversation, seed int) (answers [][]kv.Token, err error) {
		for i := range 40 {
			turn, err := c.Begin(ctx, tokens(seed+i, 5), chat.BeginOptions{})
			if err != nil {
				return nil, err
			}
			n := 0
			for _, err := range turn.Generate(ctx, chat.Greedy, nil) {
				if err != nil {
					return nil, err
				}
				if n++; n == 6 {
					break
				}
			}
			answers = append(answers, turn.Answer())
			if err := turn.Commit(ctx); err != nil {
				return nil, err
			}
		}
		return answers, nil
	}
	alone := map[string][][]kv.Token{}
	for i, id := range []string{"a", "b"} { // in much room, and never rewritten
		r := newRoom(t, hashed.Options{})
		big := o
		big.Facts = 1000
		got, err := talk(r.conversation(id, big), i*100)
		r.check(err)
		alone[id] = got
	}
	r := newRoom(t, hashed.Options{Cells: 300, Sequences: 4}) // just those of two turns
	var wg, calls sync.WaitGroup
	done := make(chan struct{})
	for i, id := range []string{"a", "b"} {
		c := r.conversation(id, o)
		wg.Go(func() {
			got, err := talk(c, i*100)
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
			// A rewrite changes what is seen: until the first one, answers are those of the conversation alone.
			k := 0
			for k < len(got) && slices.Equal(got[k], alone[id][k]) {
				k++
			}
			if s := c.Stats(); k < 10 || s.Rewrites == 0 || s.StoreErrors > 0 {
				t.Errorf("%s: the first %d answers are as alone; %+v", id, k, s)
			}
		})
	}
	calls.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			full := []error{kv.ErrFull, chat.ErrOpen}
			for _, err := range []error{r.h.Trim(ctx, 100), r.h.Warm(ctx, "w", tokens(7, 30)), r.h.Delete(ctx, "a"), r.h.Delete(ctx, fmt.Sprint("c", i))} {
				if err != nil && !slices.ContainsFunc(full, func(e error) bool { return errors.Is(err, e) }) {
					t.Error(err)
				}
			}
			for x, err := range r.h.List(ctx) {
				if err != nil || x.ID == "" {
					t.Errorf("%+v, %v", x, err)
				}
			}
		}
	})
	wg.Wait()
	close(done)
	calls.Wait()
}

// Deleting a conversation leaves what another one with its system prompt finds, and nothing of its own.
func TestDeleteLeavesOthers(t *testing.T) {
	r := newRoom(t, hashed.Options{})
	o := chat.Options{System: tokens(1, 40), Facts: 60, Ring: 100, Reserve: 20}
	for i, id := range []string{"a", "b"} {
		c := r.conversation(id, o)
		r.check(c.SetMeta(ctx, []byte(secret+id)))
		r.check(c.SetFact(ctx, "f", tokens(i+3, 9)))
		r.turn(c, tokens(i+5, 20), 10, chat.BeginOptions{})
		r.check(c.Close())
	}
	loaded := func() int {
		c := r.conversation("b", o)
		defer c.Close()
		turn := r.begin(c, tokens(9, 4), chat.BeginOptions{})
		return turn.Stats().Loaded
	}
	loaded() // computes the last token of the answer, which is stored then
	before := loaded()
	r.check(r.h.Delete(ctx, "a"))
	r.check(r.store.Sync(ctx))
	if after := loaded(); after != before || after < 70 {
		t.Errorf("%d rows are loaded, %d were", after, before)
	}
	if files := r.grep(secret + "a"); len(files) > 0 || len(r.grep(secret+"b")) == 0 {
		t.Errorf("in %q", files)
	}
	id, err := r.store.ScopeID(chat.Scope("a"))
	r.check(err)
	for b, err := range r.store.Blocks(ctx) {
		if r.check(err); b.Scope == id {
			t.Errorf("%+v", b)
		}
	}
	for x, err := range r.h.List(ctx) {
		if r.check(err); x.ID != "b" {
			t.Errorf("%+v", x)
		}
	}
	c := r.conversation("a", o)
	if len(c.Turns())+len(c.Facts())+len(c.Meta()) > 0 {
		t.Errorf("%v %v %q", c.Turns(), c.Facts(), c.Meta())
	}
}

// 500 turns in a small ring: the log, the file, the store, the cache and the heap stay as they are.
func TestEndless(t *testing.T) {
	r := newRoom(t, hashed.Options{RowBytes: 256, Cells: 300, Sequences: 4})
	o := chat.Options{System: tokens(1, 20), Facts: 40, Ring: 60, Reserve: 10, Policy: chat.Recent(2)}
	c := r.conversation("a", o)
	log, file, blocks, cells := 0, int64(0), 0, 0
	for i := range 500 {
		if i%7 == 0 {
			r.check(c.SetFact(ctx, "f", tokens(i, 5)))
		}
		r.turn(c, tokens(i, 4+i%5), 5+i%5, chat.BeginOptions{Embedding: make([]float32, 16)})
		if i%100 == 99 {
			r.again()
			c = r.conversation("a", o)
		}
		p := c.View()
		log = max(log, p[len(p)-1].End)
		if i%20 == 0 {
			for x, err := range r.h.List(ctx) {
				r.check(err)
				file = max(file, x.Bytes)
			}
			n := 0
			for _, err := range r.store.Blocks(ctx) {
				r.check(err)
				n++
			}
			blocks = max(blocks, n)
		}
		cells = max(cells, r.rt.Stats().MostCells)
		r.clean(c)
	}
	if log > 4*100+60+60 || file > 64<<10 || blocks > 3*log/16 || cells > 300 {
		t.Errorf("a log of %d tokens, a file of %d bytes, %d blocks, %d cells", log, file, blocks, cells)
	}
	t.Logf("a log of at most %d tokens, a file of %d bytes, %d blocks, %d cells", log, file, blocks, cells)
}

// Many conversations on few cells take turns: those that wait are in the store, and go on as they were.
func TestParking(t *testing.T) {
	r := newRoom(t, hashed.Options{Cells: 150, Sequences: 3})
	o := chat.Options{System: tokens(1, 20), Facts: 40, Ring: 60, Reserve: 10}
	var cs []*chat.Conversation
	var lists [8][]hashed.Entry
	for i := range lists {
		cs = append(cs, r.conversation(fmt.Sprint(i), o))
		lists[i] = see(nil, tokens(1, 20))
	}
	for round := range 5 {
		for i, c := range cs {
			turn := r.begin(c, tokens(i+10*round, 7), chat.BeginOptions{Reserve: 2})
			lists[i] = see(lists[i], tokens(i+10*round, 7), kv.Range{End: len(lists[i])})
			r.expect(turn, lists[i])
			if s := turn.Stats(); s.Prefilled > 7 && i+round > 0 {
				t.Errorf("round %d, conversation %d: %d tokens were computed for a message of 7", round, i, s.Prefilled)
			}
			r.check(turn.Commit(ctx))
			r.clean(c)
		}
	}
	if n := r.rt.Stats().MostCells; n > 150 {
		t.Errorf("%d cells", n)
	}
	r.check(r.h.Trim(ctx, 150))
	if live := r.rt.Live(); len(live) > 0 {
		t.Errorf("%v", live)
	}
	turn := r.begin(cs[0], tokens(1, 3), chat.BeginOptions{})
	r.want(r.h.Trim(ctx, 150), kv.ErrFull)
	r.check(turn.Abort(ctx))
	r.check(r.h.Trim(ctx, 150))
}
