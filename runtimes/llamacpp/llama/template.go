//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package llama

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// ErrTemplate is returned for a chat template that llama_chat_apply_template does not know: it runs no Jinja, but recognises the
// templates of many models by what they contain, and has names for them.
var ErrTemplate = errors.New("llama: a chat template that llama.cpp does not know")

// Message is a part of a chat as a template sees it. The role is system, user or assistant.
type Message struct{ Role, Content string }

// message is llama_chat_message.
type message struct{ role, content uintptr }

// Template is the chat template in the model's file; empty if there is none.
func (m *Model) Template() string {
	if m == nil || m.ptr == 0 {
		return ""
	}
	return m.lib.modelTemplate(m.ptr, 0)
}

// ApplyTemplate puts messages into the form of a chat template: the text of one, or the name of one that llama.cpp has built in (chatml,
// gemma, llama3 …). With answer it ends where the answer begins. No message has a byte of 0.
func (l *Lib) ApplyTemplate(template string, messages []Message, answer bool) (string, error) {
	if template == "" { // llama.cpp would take chatml
		return "", fmt.Errorf("%w: it is empty", ErrTemplate)
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	text := func(s string) uintptr {
		b := append([]byte(s), 0)
		pins.Pin(&b[0])
		return uintptr(unsafe.Pointer(&b[0]))
	}
	chat := make([]message, len(messages)+1)
	pins.Pin(&chat[0])
	for i, m := range messages {
		if strings.ContainsRune(m.Role+m.Content, 0) {
			return "", fmt.Errorf("%w: message %d has a byte of 0", ErrTemplate, i)
		}
		chat[i] = message{text(m.Role), text(m.Content)}
	}
	buf := make([]byte, 4096)
	for {
		n := l.applyTemplate(template, uintptr(unsafe.Pointer(&chat[0])), uintptr(len(messages)), answer, &buf[0], int32(len(buf)))
		switch {
		case n < 0:
			return "", fmt.Errorf("%w (llama_chat_apply_template returned %d)", ErrTemplate, n)
		case int(n) <= len(buf):
			return string(buf[:n]), nil
		}
		buf = make([]byte, n)
	}
}

// Ends says whether a token ends an answer (llama_vocab_is_eog).
func (m *Model) Ends(token int32) bool {
	return token >= 0 && int(token) < m.Vocabulary() && m.hasVocabulary() && m.lib.ends(m.vocab, token)
}
