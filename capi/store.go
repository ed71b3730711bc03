//go:build cgo

package main

/*
#include "dormouse.h"

void dormouse_call_log(dormouse_log_fn fn, void *user, int32_t level, const char *line);
char *dormouse_shim_keep(char *text);
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/version"
	"github.com/dormousekv/dormouse/kv"
)

// logger is where the next store's log goes.
var logger = struct {
	sync.Mutex
	to *slog.Logger
}{to: slog.New(slog.DiscardHandler)}

// newToC is a logger that hands its lines to a C function.
func newToC(fn C.dormouse_log_fn, user unsafe.Pointer) *slog.Logger {
	w := lines{fn, user}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

type lines struct {
	fn   C.dormouse_log_fn
	user unsafe.Pointer
}

// Write is called with one line at a time.
func (l lines) Write(p []byte) (int, error) {
	level := C.int32_t(slog.LevelInfo)
	for _, v := range []slog.Level{slog.LevelDebug, slog.LevelWarn, slog.LevelError} {
		if strings.HasPrefix(string(p), "level="+v.String()+" ") {
			level = C.int32_t(v)
		}
	}
	line := append(p[:len(p):len(p)], 0)
	if n := len(p); n > 0 && p[n-1] == '\n' {
		line[n-1] = 0
	}
	C.dormouse_call_log(l.fn, l.user, level, (*C.char)(unsafe.Pointer(&line[0])))
	return len(p), nil
}

// kept is a C string that is given out for ever.
func kept(text string) *C.char { return C.dormouse_shim_keep(C.CString(text)) }

var versionText = kept(version.Version)

//export goVersion
func goVersion() *C.char { return versionText }

// reasonTexts are C strings by number.
var reasonTexts = sync.OnceValue(func() []*C.char {
	texts := make([]*C.char, kv.ReasonCodes)
	for i := range texts {
		texts[i] = kept(kv.ReasonCode(i).String())
	}
	return texts
})

//export goReasonText
func goReasonText(reason C.int32_t) *C.char {
	if reason < 0 || int(reason) >= kv.ReasonCodes {
		reason = 0
	}
	return reasonTexts()[reason]
}

//export goSetLog
func goSetLog(e *C.dormouse_error, fn C.dormouse_log_fn, user unsafe.Pointer) C.dormouse_status {
	return plain(e, func() error {
		logger.Lock()
		defer logger.Unlock()
		if fn == nil {
			logger.to = slog.New(slog.DiscardHandler)
		} else {
			logger.to = newToC(fn, user)
		}
		return nil
	})
}

//export goOpen
func goOpen(e *C.dormouse_error, dir, options *C.char, c *C.dormouse_call, out *C.dormouse_store) C.dormouse_status {
	if out != nil {
		out.id = 0
	}
	return do(e, c, func(ctx context.Context) error {
		if dir == nil || out == nil {
			return badArgument("dir or out is null")
		}
		if *dir == 0 {
			return badArgument("dir is empty: expected the name of a folder")
		}
		o, err := parseOptions(text(options))
		if err != nil {
			return err
		}
		logger.Lock()
		o.Logger = logger.to
		logger.Unlock()
		s, err := db.Open(ctx, C.GoString(dir), o)
		if o.ReadOnly && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", db.ErrNotFound, err)
		}
		if err != nil {
			return err
		}
		out.id = C.uint64_t(newHandle(&store{db: s}))
		return nil
	})
}

//export goClose
func goClose(e *C.dormouse_error, h C.dormouse_store) C.dormouse_status {
	return plain(e, func() error {
		s, err := of[*store](uint64(h.id))
		if err != nil {
			return err
		}
		s.closes.Lock()
		defer s.closes.Unlock()
		if _, err := of[*store](uint64(h.id)); err != nil {
			return err // the one that this one waited for has closed it
		}
		release, err := hold(s) // who closed a store may free the contexts next
		if err != nil {
			return err
		}
		defer release()
		if err := s.db.Close(); errors.Is(err, db.ErrLeased) {
			return err // it is open still
		} else if drop(uint64(h.id)); err != nil {
			dropAllOf(s)
			return err
		}
		dropAllOf(s)
		return nil
	})
}

// onStore runs a call on a store.
func onStore(e *C.dormouse_error, h C.dormouse_store, c *C.dormouse_call, f func(ctx context.Context, s *db.Store) error) C.dormouse_status {
	return do(e, c, func(ctx context.Context) error {
		s, err := of[*store](uint64(h.id))
		if err != nil {
			return err
		}
		return f(ctx, s.db)
	})
}

//export goSuspend
func goSuspend(e *C.dormouse_error, h C.dormouse_store, c *C.dormouse_call) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error { return s.Suspend(ctx) })
}

//export goResume
func goResume(e *C.dormouse_error, h C.dormouse_store, c *C.dormouse_call) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error { return s.Resume(ctx) })
}

//export goSync
func goSync(e *C.dormouse_error, h C.dormouse_store, c *C.dormouse_call) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error { return s.Sync(ctx) })
}

//export goPressure
func goPressure(e *C.dormouse_error, h C.dormouse_store, level C.int32_t, c *C.dormouse_call) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error {
		if level < C.int32_t(db.Moderate) || level > C.int32_t(db.Critical) {
			return badArgument("pressure %d: expected 1 moderate, 2 low or 3 critical", level)
		}
		_, err := s.Pressure(ctx, db.Pressure(level))
		return err
	})
}

//export goVerify
func goVerify(e *C.dormouse_error, h C.dormouse_store, c *C.dormouse_call, report *C.char, size C.size_t, needed *C.size_t) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error {
		r, err := admin.VerifyStore(ctx, s, admin.VerifyOptions{})
		if err != nil {
			return err
		}
		type damage struct {
			File     string `json:"file"`
			Offset   int64  `json:"offset"`
			What     string `json:"what"`
			Expected string `json:"expected,omitempty"`
			Found    string `json:"found,omitempty"`
		}
		w := struct {
			Damage  []damage `json:"damage"`
			Notes   []string `json:"notes"`
			Files   int      `json:"files"`
			Bytes   int64    `json:"bytes"`
			Records int      `json:"records"`
		}{[]damage{}, append([]string{}, r.Notes...), r.Files, r.Bytes, r.Records}
		for _, d := range r.Damage {
			w.Damage = append(w.Damage, damage{d.File, d.Offset, d.What, d.Expected, d.Found})
		}
		return giveJSON(w, report, size, needed)
	})
}

func giveJSON(v any, buf *C.char, size C.size_t, needed *C.size_t) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return giveText(b, buf, size, needed)
}

//export goStats
func goStats(e *C.dormouse_error, h C.dormouse_store, buf *C.char, size C.size_t, needed *C.size_t) C.dormouse_status {
	return onStore(e, h, nil, func(_ context.Context, s *db.Store) error {
		st, err := s.Stats()
		if err != nil {
			return err
		}
		reasons := map[string]int64{}
		for r, n := range st.Reasons {
			reasons[r.String()] = n
		}
		return giveJSON(map[string]any{
			"matches": st.Matches, "hits": st.Hits, "reasons": reasons, "tokens_asked": st.TokensAsked, "tokens_reused": st.TokensReused, "puts": st.Puts,
			"records": st.Records, "bytes_put": st.BytesPut, "bytes_restored": st.BytesRestored, "evicted": st.Evicted, "deleted": st.Deleted, "damaged": st.Damaged,
			"checkpoints": st.Checkpoints, "disk_bytes": st.DiskBytes, "live_bytes": st.LiveBytes, "blocks": st.Blocks,
			"budget": st.Budget, "disk_high_water": st.DiskHighWater, "disk_free": st.DiskFree, "kept_free": st.KeptFree, "full": st.Full,
			"pending_bytes": st.PendingBytes, "text": st.String(),
		}, buf, size, needed)
	})
}

//export goHash
func goHash(e *C.dormouse_error, data unsafe.Pointer, n C.size_t, out *C.char) C.dormouse_status {
	return plain(e, func() error {
		b, err := list("data", (*byte)(data), n)
		if err != nil {
			return err
		}
		return giveHash(kv.HashOf(b), out)
	})
}

//export goHashFile
func goHashFile(e *C.dormouse_error, path, out *C.char) C.dormouse_status {
	return plain(e, func() error {
		if path == nil {
			return badArgument("path is null")
		}
		if err := isFile("path", C.GoString(path)); err != nil {
			return err
		}
		h, err := gguf.WeightsHash(context.Background(), C.GoString(path))
		if err != nil {
			return err
		}
		return giveHash(h, out)
	})
}

// isFile refuses what no model or adapter is read from.
func isFile(what, path string) error {
	is, err := os.Stat(path)
	if err != nil {
		return badArgument("%s: %v", what, err)
	}
	if is.IsDir() {
		return badArgument("%s: %s is a folder: expected a file", what, path)
	}
	return nil
}

func giveHash(h kv.Hash, out *C.char) error {
	if out == nil {
		return badArgument("out is null")
	}
	return giveText(fmt.Appendf(nil, "%x", h[:]), out, 33, nil)
}

//export goDeleteRef
func goDeleteRef(e *C.dormouse_error, h C.dormouse_store, name *C.char, c *C.dormouse_call) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error {
		if name == nil {
			return badArgument("name is null")
		}
		return s.DeleteRef(ctx, C.GoString(name))
	})
}

//export goDeleteScope
func goDeleteScope(e *C.dormouse_error, h C.dormouse_store, scope *C.char, c *C.dormouse_call, out *C.dormouse_deleted) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error {
		if scope == nil || *scope == 0 {
			return badArgument("scope is null or empty")
		}
		if err := canDeleted(out); err != nil {
			return err
		}
		d, err := s.DeleteScope(ctx, C.GoString(scope))
		giveDeleted(out, d)
		return err
	})
}

func canDeleted(out *C.dormouse_deleted) error {
	if out == nil {
		return nil
	}
	return sized("dormouse_deleted", out.size, unsafe.Sizeof(*out))
}

func giveDeleted(out *C.dormouse_deleted, d db.Deleted) {
	if out != nil {
		out.blocks, out.records, out.refs, out.sessions = C.size_t(d.Blocks), C.size_t(d.Records), C.size_t(d.Refs), C.size_t(d.Sessions)
		out.bytes = C.int64_t(d.Bytes)
	}
}
