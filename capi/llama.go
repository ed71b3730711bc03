//go:build cgo

package main

/*
#include <stdlib.h>
#include "dormouse_llama.h"

uintptr_t dormouse_shim_function(const dormouse_llama_functions *f, char *name);
int32_t dormouse_shim_decode(dormouse_llama_decode_fn fn, void *user, int32_t *tokens, size_t n, int32_t first, int32_t sequence);
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

// session is a host's llama.cpp context.
type session struct {
	*llamacpp.Session
	store *store
	busy  sync.Mutex // held by the call that is at work
}

// begin is called before a call that found the session by its handle, and gives busy when it is over. The handle may be closed since, and the context freed.
func (s *session) begin(handle uint64) error {
	if !s.busy.TryLock() {
		return errBusy
	}
	if _, err := of[*session](handle); err != nil {
		s.busy.Unlock()
		return err
	}
	return nil
}

// onSession runs a call on a context of llama.cpp. It does not wait for another one: that may be the one whose decode function this one comes from.
func onSession(e *C.dormouse_error, h C.dormouse_llama, c *C.dormouse_call, f func(ctx context.Context, s *session) error) C.dormouse_status {
	return do(e, c, func(ctx context.Context) error {
		s, err := of[*session](uint64(h.id))
		if err != nil {
			return err
		}
		if err := s.begin(uint64(h.id)); err != nil {
			return err
		}
		defer s.busy.Unlock()
		return f(ctx, s)
	})
}

//export goLlamaAttach
func goLlamaAttach(e *C.dormouse_error, h C.dormouse_store, functions *C.dormouse_llama_functions, llama unsafe.Pointer, path, options *C.char,
	decode C.dormouse_llama_decode_fn, user unsafe.Pointer, c *C.dormouse_call, out *C.dormouse_llama) C.dormouse_status {
	if out != nil {
		out.id = 0
	}
	return do(e, c, func(ctx context.Context) error {
		s, err := of[*store](uint64(h.id))
		if err != nil {
			return err
		}
		if functions == nil || llama == nil || decode == nil || out == nil {
			return badArgument("functions, context, decode or out is null")
		}
		if err := sized("dormouse_llama_functions", functions.size, unsafe.Sizeof(functions.size)); err != nil {
			return err
		}
		o, err := parseLlama(text(path), text(options))
		if err != nil {
			return err
		}
		if path != nil {
			if err := isFile("model_path", C.GoString(path)); err != nil {
				return err
			}
		}
		lib, err := llamacpp.Bind(func(name string) (uintptr, error) { return functionOf(functions, name) })
		if err != nil {
			return err
		}
		o.Decode = decoder(decode, user)
		logger.Lock()
		o.Logger = logger.to
		logger.Unlock()
		v, id, err := attaching(uint64(h.id)) // who closes the store meanwhile may not: the context would be freed next
		if err != nil {
			return err
		}
		defer v.busy.Unlock()
		if v.Session, err = llamacpp.Attach(ctx, s.db, lib, uintptr(llama), o); err != nil {
			drop(id)
			return err
		}
		out.id = C.uint64_t(id)
		return nil
	})
}

// functionOf finds a function in a host's table.
func functionOf(functions *C.dormouse_llama_functions, name string) (uintptr, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	at := uintptr(C.dormouse_shim_function(functions, text))
	if at == 0 {
		return 0, errors.New("it is null in dormouse_llama_functions, or the table ends before it")
	}
	return at, nil
}

// decoder calls a host's decode function.
func decoder(fn C.dormouse_llama_decode_fn, user unsafe.Pointer) llamacpp.DecodeFunc {
	return func(tokens []kv.Token, first, sequence int) error {
		if len(tokens) == 0 {
			return nil
		}
		got := C.dormouse_shim_decode(fn, user, (*C.int32_t)(unsafe.Pointer(&tokens[0])), C.size_t(len(tokens)), C.int32_t(first), C.int32_t(sequence))
		switch {
		case got == 1: // as llama_decode says that there is no room
			return fmt.Errorf("%w returned 1 for %d tokens from position %d on: %w", errDecode, len(tokens), first, kv.ErrFull)
		case got != 0:
			return fmt.Errorf("%w returned %d for %d tokens from position %d on", errDecode, got, len(tokens), first)
		}
		return nil
	}
}

//export goLlamaClose
func goLlamaClose(e *C.dormouse_error, h C.dormouse_llama) C.dormouse_status {
	return onSession(e, h, nil, func(context.Context, *session) error {
		drop(uint64(h.id))
		return nil
	})
}

//export goLlamaInfo
func goLlamaInfo(e *C.dormouse_error, h C.dormouse_llama, buf *C.char, size C.size_t, needed *C.size_t) C.dormouse_status {
	return onSession(e, h, nil, func(_ context.Context, s *session) error {
		return giveJSON(map[string]any{
			"mode": s.Mode().String(), "why": s.Why(), "fingerprint": s.Model().Fingerprint().String(), "batch_tokens": s.BatchTokens(), "deviation": s.Deviation(),
		}, buf, size, needed)
	})
}

//export goLlamaModel
func goLlamaModel(e *C.dormouse_error, h C.dormouse_llama, out *C.dormouse_model) C.dormouse_status {
	if out != nil {
		out.id = 0
	}
	return onSession(e, h, nil, func(_ context.Context, s *session) error {
		if out == nil {
			return badArgument("out is null")
		}
		out.id = C.uint64_t(newHandle(&model{s.Model(), s.store}))
		return nil
	})
}

// withPrompt runs a call on a context with a prompt, in memory of ours: a session remembers what a sequence holds.
func withPrompt(e *C.dormouse_error, h C.dormouse_llama, prompt *C.dormouse_prompt, c *C.dormouse_call, f func(ctx context.Context, s *session, p kv.Prompt) error) C.dormouse_status {
	return onSession(e, h, c, func(ctx context.Context, s *session) error {
		p, err := promptOf(prompt)
		if err != nil {
			return err
		}
		return f(ctx, s, owned(p))
	})
}

//export goLlamaRestore
func goLlamaRestore(e *C.dormouse_error, h C.dormouse_llama, prompt *C.dormouse_prompt, sequence C.int32_t, c *C.dormouse_call, out *C.dormouse_restored) C.dormouse_status {
	return withPrompt(e, h, prompt, c, func(ctx context.Context, s *session, p kv.Prompt) error {
		if out == nil {
			return badArgument("out is null")
		}
		if err := canRestored(out); err != nil {
			return err
		}
		out.tokens = 0
		got, err := s.Restore(ctx, p, int(sequence))
		giveRestored(out, got.Tokens, got.Reason)
		return err
	})
}

//export goLlamaPrefill
func goLlamaPrefill(e *C.dormouse_error, h C.dormouse_llama, prompt *C.dormouse_prompt, from C.size_t, sequence C.int32_t, c *C.dormouse_call) C.dormouse_status {
	return withPrompt(e, h, prompt, c, func(ctx context.Context, s *session, p kv.Prompt) error {
		if uint64(from) > uint64(len(p.Tokens)) {
			return badArgument("from is %d, the prompt has %d tokens", from, len(p.Tokens))
		}
		return s.Prefill(ctx, p, int(from), int(sequence))
	})
}

//export goLlamaSave
func goLlamaSave(e *C.dormouse_error, h C.dormouse_llama, prompt *C.dormouse_prompt, sequence C.int32_t, c *C.dormouse_call, out *C.dormouse_put_result) C.dormouse_status {
	return withPrompt(e, h, prompt, c, func(ctx context.Context, s *session, p kv.Prompt) error {
		if err := canPut(out); err != nil {
			return err
		}
		got, err := s.Save(ctx, p, int(sequence))
		givePut(out, got)
		return err
	})
}

//export goLlamaCapture
func goLlamaCapture(e *C.dormouse_error, h C.dormouse_llama, prompt *C.dormouse_prompt, sequence C.int32_t, c *C.dormouse_call) C.dormouse_status {
	return withPrompt(e, h, prompt, c, func(ctx context.Context, s *session, p kv.Prompt) error { return s.Capture(ctx, p, int(sequence)) })
}

//export goLlamaReset
func goLlamaReset(e *C.dormouse_error, h C.dormouse_llama, sequence C.int32_t) C.dormouse_status {
	return onSession(e, h, nil, func(_ context.Context, s *session) error { return s.Reset(int(sequence)) })
}

//export goLlamaTruncate
func goLlamaTruncate(e *C.dormouse_error, h C.dormouse_llama, sequence C.int32_t, n C.size_t) C.dormouse_status {
	return onSession(e, h, nil, func(_ context.Context, s *session) error {
		return s.Truncate(int(sequence), int(min(n, math.MaxInt32)))
	})
}

//export goLlamaRecheck
func goLlamaRecheck(e *C.dormouse_error, h C.dormouse_llama, adapters *C.dormouse_adapter, n C.size_t, c *C.dormouse_call) C.dormouse_status {
	return onSession(e, h, c, func(ctx context.Context, s *session) error {
		given, err := adaptersOf(adapters, n)
		if err != nil {
			return err
		}
		return s.Recheck(ctx, given...)
	})
}

//export goLlamaSetAdapters
func goLlamaSetAdapters(e *C.dormouse_error, h C.dormouse_llama, loaded *unsafe.Pointer, adapters *C.dormouse_adapter, n C.size_t, c *C.dormouse_call) C.dormouse_status {
	return onSession(e, h, c, func(ctx context.Context, s *session) error {
		given, err := adaptersOf(adapters, n)
		if err != nil {
			return err
		}
		if loaded == nil && len(given) > 0 {
			return badArgument("loaded is null, for %d adapters", len(given))
		}
		var all []llamacpp.Adapter
		for i, p := range unsafe.Slice(loaded, len(given)) {
			if p == nil {
				return badArgument("loaded[%d] is null", i)
			}
			all = append(all, llamacpp.Adapter{Adapter: given[i], Pointer: uintptr(p)})
		}
		return s.SetAdapters(ctx, all...)
	})
}

//export goLlamaTrim
func goLlamaTrim(e *C.dormouse_error, h C.dormouse_llama) C.dormouse_status {
	return onSession(e, h, nil, func(_ context.Context, s *session) error {
		s.Trim()
		return nil
	})
}
