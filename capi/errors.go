//go:build cgo

package main

/*
#include <string.h>
#include "dormouse.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"syscall"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

var (
	errHandle   = errors.New("the handle is 0, closed, or of another kind")
	errArgument = errors.New("argument")
	errBuffer   = errors.New("the text does not fit into the buffer")
	errCancel   = errors.New("the call was cancelled")
	errBusy     = errors.New("another call is at work on this llama.cpp context, where calls must not overlap")
	errDecode   = errors.New("the decode function")
)

// statuses are the errors that C programs tell apart. The first that fits counts.
var statuses = []struct {
	err    error
	status C.dormouse_status
}{
	{errHandle, C.DORMOUSE_ERR_HANDLE},
	{errArgument, C.DORMOUSE_ERR_ARGUMENT},
	{errBuffer, C.DORMOUSE_ERR_BUFFER},
	{errCancel, C.DORMOUSE_ERR_CANCELLED},
	{errBusy, C.DORMOUSE_ERR_BUSY},
	{errDecode, C.DORMOUSE_ERR_DECODE},
	{context.DeadlineExceeded, C.DORMOUSE_ERR_DEADLINE},
	{context.Canceled, C.DORMOUSE_ERR_CANCELLED},
	{db.ErrPoisoned, C.DORMOUSE_ERR_POISONED},
	{db.ErrCorrupt, C.DORMOUSE_ERR_CORRUPT},
	{db.ErrNoSpace, C.DORMOUSE_ERR_NO_SPACE},
	{db.ErrLocked, C.DORMOUSE_ERR_LOCKED},
	{db.ErrSuspended, C.DORMOUSE_ERR_SUSPENDED},
	{db.ErrClosed, C.DORMOUSE_ERR_CLOSED},
	{db.ErrMatchClosed, C.DORMOUSE_ERR_HANDLE},
	{db.ErrReadOnly, C.DORMOUSE_ERR_READ_ONLY},
	{db.ErrLeased, C.DORMOUSE_ERR_LEASED},
	{db.ErrNotStored, C.DORMOUSE_ERR_NOT_STORED},
	{db.ErrNotFound, C.DORMOUSE_ERR_NOT_FOUND},
	{db.ErrRetired, C.DORMOUSE_ERR_RETIRED},
	{db.ErrLimit, C.DORMOUSE_ERR_LIMIT},
	{db.ErrNotDestroyed, C.DORMOUSE_ERR_NOT_DESTROYED},
	{db.ErrNotMoved, C.DORMOUSE_ERR_NOT_DESTROYED},
	{kv.ErrPrompt, C.DORMOUSE_ERR_PROMPT},
	{kv.ErrRows, C.DORMOUSE_ERR_ROWS},
	{kv.ErrDescriptor, C.DORMOUSE_ERR_DESCRIPTOR},
	{db.ErrForeign, C.DORMOUSE_ERR_FOREIGN},
	{db.ErrNotEmpty, C.DORMOUSE_ERR_FOREIGN},
	{db.ErrUnsafeDir, C.DORMOUSE_ERR_FOREIGN},
	{db.ErrVersion, C.DORMOUSE_ERR_VERSION},
	{fs.ErrPermission, C.DORMOUSE_ERR_DENIED},
	{syscall.EROFS, C.DORMOUSE_ERR_DENIED},
	{syscall.ENOSPC, C.DORMOUSE_ERR_NO_SPACE},
	{syscall.ENOTDIR, C.DORMOUSE_ERR_FOREIGN},
	{llamacpp.ErrReplaced, C.DORMOUSE_ERR_CLOSED},
	{llamacpp.ErrSequence, C.DORMOUSE_ERR_ARGUMENT},
	{llamacpp.ErrNeedDecode, C.DORMOUSE_ERR_ARGUMENT},
	{llamacpp.ErrIdentity, C.DORMOUSE_ERR_IDENTITY},
	{llamacpp.ErrRefused, C.DORMOUSE_ERR_REFUSED},
	{llamacpp.ErrNotEmpty, C.DORMOUSE_ERR_NOT_EMPTY},
	{llamacpp.ErrPositions, C.DORMOUSE_ERR_POSITIONS},
	{llamacpp.ErrLineage, C.DORMOUSE_ERR_LINEAGE},
	{llamacpp.ErrState, C.DORMOUSE_ERR_STATE},
	{llamacpp.ErrTooLong, C.DORMOUSE_ERR_TOO_LONG},
}

// say puts an error into the thread's last one.
func say(e *C.dormouse_error, err error) C.dormouse_status {
	if err == nil {
		return C.DORMOUSE_OK
	}
	e.status, e.offset = C.DORMOUSE_ERR_OTHER, -1
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			e.status = C.int32_t(s.status)
			break
		}
	}
	if errors.As(err, new(*db.PendingError)) {
		e.status = C.DORMOUSE_ERR_NOT_DESTROYED
	}
	e.file[0] = 0
	var corrupt *db.CorruptError
	if errors.As(err, &corrupt) {
		setText(e.file[:], corrupt.File)
		e.offset = C.int64_t(corrupt.Offset)
	}
	var lineage *llamacpp.LineageError
	if errors.As(err, &lineage) {
		e.offset = C.int64_t(lineage.From)
	}
	setText(e.message[:], err.Error())
	return C.dormouse_status(e.status)
}

// setText writes a text and a zero byte, cut if need be.
func setText(to []C.char, text string) {
	n := min(len(text), len(to)-1)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&to[0])), n), text)
	to[n] = 0
}

// guard turns a panic into an error: a fault of this library must not end the caller's process.
func guard(e *C.dormouse_error, status *C.dormouse_status) {
	if p := recover(); p != nil {
		*status = say(e, fmt.Errorf("a fault of the library, please report it: %v\n%s", p, debug.Stack()))
	}
}

func badArgument(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errArgument, fmt.Sprintf(format, args...))
}

// giveText writes a text into the caller's buffer.
func giveText(text []byte, buf *C.char, size C.size_t, needed *C.size_t) error {
	if needed != nil {
		*needed = C.size_t(len(text) + 1)
	}
	if buf == nil && size > 0 {
		return badArgument("the buffer is null")
	}
	if int(size) < len(text)+1 {
		return fmt.Errorf("%w: it has %d bytes, %d are needed", errBuffer, size, len(text)+1)
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(buf)), len(text)+1)
	copy(to, text)
	to[len(text)] = 0
	return nil
}
