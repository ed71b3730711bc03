//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package llama

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"

	"github.com/ebitengine/purego"
)

// Lib is an opened llama.cpp. Its models and contexts are not safe for concurrent use, as in llama.cpp itself.
type Lib struct {
	dir    string
	handle uintptr
	log    *sink
	layout layout

	version            func() string
	modelDefaults      func() modelParams
	contextDefaults    func() contextParams
	modelLoad          func(path string, p modelParams) uintptr
	modelFree          func(model uintptr)
	modelVocab         func(model uintptr) uintptr
	initFromModel      func(model uintptr, p contextParams) uintptr
	free               func(ctx uintptr)
	decode             func(ctx uintptr, b batch) int32
	logits             func(ctx uintptr, i int32) uintptr
	embeddings         func(ctx uintptr, seq int32) uintptr
	width              func(model uintptr) int32
	memory             func(ctx uintptr) uintptr
	memoryClear        func(memory uintptr, data bool)
	batchTokens        func(ctx uintptr) uint32
	microBatch         func(ctx uintptr) uint32
	sequences          func(ctx uintptr) uint32
	vocabType          func(vocab uintptr) int32
	vocabTokens        func(vocab uintptr) int32
	tokenize           func(vocab uintptr, text string, length int32, tokens *int32, capacity int32, special, parse bool) int32
	tokenPiece         func(vocab uintptr, token int32, buf *byte, length, strip int32, special bool) int32
	ends               func(vocab uintptr, token int32) bool
	modelTemplate      func(model, name uintptr) string
	applyTemplate      func(template string, messages, n uintptr, answer bool, buf *byte, length int32) int32
	backendLoadAllPath func(dir string)
	backendInit        func()
	logSet             func(callback, data uintptr)
}

// loading is held by Load: what the process has loaded must not change between the look at it and the next library.
var loading sync.Mutex

// Load opens libggml-base, libggml and libllama of the folder, whatever version their names carry, and lets ggml choose
// among the backends that lie beside them. A second Load of the same folder gives the same libraries. A process has room for
// one llama.cpp: their symbols are found by name, across libraries, so a second one would call into the first. It is refused
// ([ErrSecond]), whoever loaded the first, and also if the first was refused: what is loaded stays.
func Load(dir string) (*Lib, error) {
	switch runtime.GOARCH {
	case "amd64", "arm64": // purego passes structs by value
	default:
		return nil, fmt.Errorf("llama: %s is not supported: llama.cpp takes structs by value", runtime.GOARCH)
	}
	loading.Lock()
	defer loading.Unlock()
	var paths []string
	for _, stem := range stems {
		path, err := find(dir, stem)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	if err := onlyOne(paths); err != nil {
		return nil, err
	}
	l := &Lib{dir: dir}
	var handles []uintptr
	for _, path := range paths {
		h, err := open(path)
		if err != nil {
			return nil, fmt.Errorf("llama: open %s: %w", path, err)
		}
		handles = append(handles, h)
	}
	l.handle = handles[2]
	if err := l.bind(handles[1]); err != nil {
		return nil, err
	}
	l.listen()
	l.backendInit()
	l.backendLoadAllPath(dir)
	return l, nil
}

// stems are the libraries, each after those that it needs.
var stems = [...]string{"ggml-base", "ggml", "llama"}

// bind looks up all functions and checks the structs that they take.
func (l *Lib) bind(ggml uintptr) error {
	if bind(l.handle, map[string]any{"llama_version": &l.version}) != nil {
		l.version = func() string { return "of a release that does not name itself" }
	}
	err := bind(ggml, map[string]any{"ggml_backend_load_all_from_path": &l.backendLoadAllPath})
	if err == nil {
		err = bind(l.handle, map[string]any{
			"llama_model_default_params":   &l.modelDefaults,
			"llama_context_default_params": &l.contextDefaults,
			"llama_model_load_from_file":   &l.modelLoad,
			"llama_model_free":             &l.modelFree,
			"llama_model_get_vocab":        &l.modelVocab,
			"llama_init_from_model":        &l.initFromModel,
			"llama_free":                   &l.free,
			"llama_decode":                 &l.decode,
			"llama_get_logits_ith":         &l.logits,
			"llama_get_embeddings_seq":     &l.embeddings,
			"llama_model_n_embd":           &l.width,
			"llama_n_ubatch":               &l.microBatch,
			"llama_get_memory":             &l.memory,
			"llama_memory_clear":           &l.memoryClear,
			"llama_n_batch":                &l.batchTokens,
			"llama_n_seq_max":              &l.sequences,
			"llama_vocab_type":             &l.vocabType,
			"llama_vocab_n_tokens":         &l.vocabTokens,
			"llama_tokenize":               &l.tokenize,
			"llama_token_to_piece":         &l.tokenPiece,
			"llama_vocab_is_eog":           &l.ends,
			"llama_model_chat_template":    &l.modelTemplate,
			"llama_chat_apply_template":    &l.applyTemplate,
			"llama_backend_init":           &l.backendInit,
			"llama_log_set":                &l.logSet,
		})
	}
	if err == nil {
		l.layout, err = checkLayout(l.modelDefaults(), l.contextDefaults())
	}
	if err != nil {
		return unknown(l.dir, l.Version(), err)
	}
	return nil
}

// find returns the shared library of that stem: libllama.so, libllama.v0.5.0.so, libllama.dylib, llama.dll.
func find(dir, stem string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("llama: %w", err)
	}
	var names []string
	for _, e := range entries {
		if n := e.Name(); isLibrary(n, stem) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("llama: no shared library %s in %s: %w", stem, dir, os.ErrNotExist)
	}
	sort.Slice(names, func(i, j int) bool { return len(names[i]) < len(names[j]) })
	return filepath.Join(dir, names[0]), nil
}

func isLibrary(name, stem string) bool {
	shared := strings.Contains(name, ".so") || strings.HasSuffix(name, ".dylib") || strings.HasSuffix(name, ".dll")
	return shared && strings.HasPrefix(strings.TrimPrefix(name, "lib"), stem+".")
}

func bind(handle uintptr, functions map[string]any) error {
	for name, fn := range functions {
		sym, err := symbol(handle, name)
		if err != nil {
			return fmt.Errorf("llama: %s is missing: %w", name, errors.ErrUnsupported)
		}
		purego.RegisterFunc(fn, sym)
	}
	return nil
}

// Lookup finds a function of libllama, as [llamacpp.Bind] wants it.
func (l *Lib) Lookup(name string) (uintptr, error) { return symbol(l.handle, name) }

// Version is the library's own word for its release.
func (l *Lib) Version() string { return l.version() }
