//go:build cgo

package main

/*
#include "dormouse.h"
*/
import "C"

import (
	"context"
	"slices"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

//export goRegister
func goRegister(e *C.dormouse_error, h C.dormouse_store, descriptor *C.char, c *C.dormouse_call, out *C.dormouse_model) C.dormouse_status {
	if out != nil {
		out.id = 0
	}
	return do(e, c, func(ctx context.Context) error {
		s, err := of[*store](uint64(h.id))
		if err != nil {
			return err
		}
		if descriptor == nil || out == nil {
			return badArgument("descriptor or out is null")
		}
		d, err := parseDescriptor(C.GoString(descriptor))
		if err != nil {
			return err
		}
		m, err := s.db.Register(ctx, d)
		if err != nil {
			return err
		}
		out.id = C.uint64_t(newHandle(&model{m.Model, s}))
		return nil
	})
}

//export goFingerprint
func goFingerprint(e *C.dormouse_error, h C.dormouse_model, out *C.char) C.dormouse_status {
	return onModel(e, h, nil, func(_ context.Context, m *model) error {
		if out == nil {
			return badArgument("out is null")
		}
		return giveText([]byte(m.Fingerprint().String()), out, 33, nil)
	})
}

//export goModelClose
func goModelClose(e *C.dormouse_error, h C.dormouse_model) C.dormouse_status {
	return onModel(e, h, nil, func(context.Context, *model) error {
		drop(uint64(h.id))
		return nil
	})
}

// onModel runs a call on a model.
func onModel(e *C.dormouse_error, h C.dormouse_model, c *C.dormouse_call, f func(ctx context.Context, m *model) error) C.dormouse_status {
	return do(e, c, func(ctx context.Context) error {
		m, err := of[*model](uint64(h.id))
		if err != nil {
			return err
		}
		return f(ctx, m)
	})
}

//export goRetire
func goRetire(e *C.dormouse_error, h C.dormouse_model, c *C.dormouse_call) C.dormouse_status {
	return onModel(e, h, c, func(ctx context.Context, m *model) error { return m.store.db.Retire(ctx, m.Fingerprint()) })
}

//export goProbe
func goProbe(e *C.dormouse_error, h C.dormouse_model, prompt *C.dormouse_prompt, limit C.size_t, c *C.dormouse_call, out *C.dormouse_restored) C.dormouse_status {
	return onModel(e, h, c, func(ctx context.Context, m *model) error {
		if out == nil {
			return badArgument("out is null")
		}
		p, err := promptOf(prompt)
		if err == nil {
			err = canRestored(out)
		}
		if err != nil {
			return err
		}
		p, options := upTo(p, limit)
		n, reason, err := m.Probe(ctx, p, options)
		giveRestored(out, n, reason)
		return err
	})
}

// upTo is a prompt of which at most so many tokens are looked for: DORMOUSE_ALL, or a number. To db, 0 is no limit.
func upTo(p kv.Prompt, limit C.size_t) (kv.Prompt, db.MatchOptions) {
	if limit == 0 {
		return kv.Prompt{Adapters: p.Adapters}, db.MatchOptions{}
	}
	return p, db.MatchOptions{Limit: int(min(limit, 1<<31-1))}
}

//export goPrefetch
func goPrefetch(e *C.dormouse_error, h C.dormouse_model, prompt *C.dormouse_prompt, limit C.size_t, c *C.dormouse_call, tokens *C.size_t) C.dormouse_status {
	return onModel(e, h, c, func(ctx context.Context, m *model) error {
		p, err := promptOf(prompt)
		if err != nil {
			return err
		}
		p, options := upTo(p, limit)
		n, err := m.Prefetch(ctx, p, options)
		if tokens != nil {
			*tokens = C.size_t(n)
		}
		return err
	})
}

//export goMatchPrompt
func goMatchPrompt(e *C.dormouse_error, h C.dormouse_model, prompt *C.dormouse_prompt, limit C.size_t, c *C.dormouse_call, out *C.dormouse_match, found *C.dormouse_restored) C.dormouse_status {
	if out != nil {
		out.id = 0
	}
	return onModel(e, h, c, func(ctx context.Context, m *model) error {
		if out == nil {
			return badArgument("out is null")
		}
		p, err := promptOf(prompt)
		if err == nil {
			err = canRestored(found)
		}
		if err != nil {
			return err
		}
		p, options := upTo(p, limit)
		x, err := m.Match(ctx, owned(p), options) // it holds on to the prompt
		if err != nil {
			return err
		}
		giveRestored(found, x.Tokens(), x.Reason())
		out.id = C.uint64_t(newHandle(&match{x, m}))
		return nil
	})
}

// owned is a prompt in memory of our own.
func owned(p kv.Prompt) kv.Prompt {
	p.Tokens = slices.Clone(p.Tokens)
	return p
}

//export goPut
func goPut(e *C.dormouse_error, h C.dormouse_model, prompt *C.dormouse_prompt, rows *C.dormouse_rows, n C.size_t, o *C.dormouse_put_options, c *C.dormouse_call, out *C.dormouse_put_result) C.dormouse_status {
	return onModel(e, h, c, func(ctx context.Context, m *model) error {
		return put(m, prompt, rows, n, o, out, func(p kv.Prompt, r kv.Rows, o db.PutOptions) (db.PutResult, error) { return m.Put(ctx, p, r, o) })
	})
}

// put is Put or Extend with what C gives.
func put(m *model, prompt *C.dormouse_prompt, rows *C.dormouse_rows, n C.size_t, o *C.dormouse_put_options, out *C.dormouse_put_result,
	do func(kv.Prompt, kv.Rows, db.PutOptions) (db.PutResult, error)) error {
	p, err := promptOf(prompt)
	if err != nil {
		return err
	}
	r, err := rowsOf(m.Model, rows, n)
	if err != nil {
		return err
	}
	if err := canPut(out); err != nil {
		return err
	}
	var options db.PutOptions
	if o != nil {
		if err := sized("dormouse_put_options", o.size, unsafe.Sizeof(*o)); err != nil {
			return err
		}
		if options.Codec, options.Compression, err = codecs(text(o.codec), text(o.compression)); err != nil {
			return err
		}
		if o.keep_states < 0 {
			return badArgument("dormouse_put_options.keep_states is %d: expected a number of states, or 0 for all", o.keep_states)
		}
		options.NoStore, options.KeepStates = o.no_store != 0, int(o.keep_states)
		if err := options.Validate(); err != nil {
			return badArgument("%v", err)
		}
	}
	got, err := do(p, r, options)
	givePut(out, got)
	return err
}

func canPut(out *C.dormouse_put_result) error {
	if out == nil {
		return nil
	}
	return sized("dormouse_put_result", out.size, unsafe.Sizeof(*out))
}

func givePut(out *C.dormouse_put_result, got db.PutResult) {
	if out != nil {
		out.tokens, out.blocks, out.records, out.reused = C.size_t(got.Tokens), C.size_t(got.Blocks), C.size_t(got.Records), C.size_t(got.Reused)
		out.bytes = C.int64_t(got.Bytes)
	}
}

//export goSetRef
func goSetRef(e *C.dormouse_error, h C.dormouse_model, name *C.char, prefix *C.dormouse_prompt, o *C.dormouse_ref_options, c *C.dormouse_call) C.dormouse_status {
	return onModel(e, h, c, func(ctx context.Context, m *model) error {
		if name == nil {
			return badArgument("name is null")
		}
		p, err := promptOf(prefix)
		if err != nil {
			return err
		}
		var options db.RefOptions
		if o != nil {
			if err := sized("dormouse_ref_options", o.size, unsafe.Sizeof(*o)); err != nil {
				return err
			}
			if o.priority < 0 || o.priority > 254 {
				return badArgument("dormouse_ref_options.priority is %d: expected 0 to 254", o.priority)
			}
			if o.ttl_ms < 0 {
				return badArgument("dormouse_ref_options.ttl_ms is %d: expected a time to live, or 0 for no end", o.ttl_ms)
			}
			if options.TTL, err = millis("dormouse_ref_options.ttl_ms", int64(o.ttl_ms)); err != nil {
				return err
			}
			options.Pinned, options.Priority = o.pinned != 0, uint8(o.priority)
		}
		return m.SetRef(ctx, C.GoString(name), p, options)
	})
}

//export goDelete
func goDelete(e *C.dormouse_error, h C.dormouse_model, prefix *C.dormouse_prompt, c *C.dormouse_call, out *C.dormouse_deleted) C.dormouse_status {
	return onModel(e, h, c, func(ctx context.Context, m *model) error {
		p, err := promptOf(prefix)
		if err == nil {
			err = canDeleted(out)
		}
		if err != nil {
			return err
		}
		d, err := m.Delete(ctx, p)
		giveDeleted(out, d)
		return err
	})
}
