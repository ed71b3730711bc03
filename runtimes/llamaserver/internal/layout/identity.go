package layout

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// Identity is what is known of a model before a slot of it was seen: all of the descriptor but tensors and groups.
type Identity struct {
	Desc     kv.Descriptor
	window   int // rows that a window layer looks back, the token's own included; 0: the file does not say
	Adapters map[int]kv.Hash
	IDs      []int // of the adapters, in the order in which the server names them
}

// Identify reads which model a server runs: the file that /props names, whose bytes are hashed once and remembered in memo, the server's build, and
// the arguments that change rows.
func Identify(ctx context.Context, p api.Props, rows string, adapters []api.Adapter, memo string, open func(path string) (*gguf.File, error)) (*Identity, error) {
	if _, err := os.Stat(p.ModelPath); err != nil {
		return nil, fmt.Errorf("the file of the server's model cannot be read here: %w", err)
	}
	f, err := open(p.ModelPath)
	if err != nil {
		return nil, err
	}
	head, err := modelfile.ReadHead(p.ModelPath, memo)
	if err != nil {
		return nil, err
	}
	weights, err := modelfile.WeightsHash(ctx, p.ModelPath, memo)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id := &Identity{Adapters: map[int]kv.Hash{}}
	id.Desc = kv.Descriptor{
		Name: nameOf(f, p), Weights: weights, Tokenizer: head.Tokenizer, Architecture: head.Architecture,
		RoPE:        ropeOf(f, head, p.Defaults.Context),
		StateFormat: strings.TrimSpace("llama-server " + p.Build + " " + rows),
	}
	if n, err := f.Int(head.Architecture + ".attention.sliding_window"); err == nil && n > 0 && n < 1<<30 {
		id.window = int(n)
	}
	for _, a := range adapters {
		if a.Invocation != "" {
			return nil, fmt.Errorf("LoRA adapter %s applies from certain tokens on", a.Path)
		}
		if id.Adapters[a.ID], err = modelfile.WeightsHash(ctx, a.Path, memo); err != nil {
			return nil, fmt.Errorf("LoRA adapter %s: %w", a.Path, err)
		}
		id.IDs = append(id.IDs, a.ID)
	}
	return id, nil
}

func nameOf(f *gguf.File, p api.Props) string {
	if name, err := f.String("general.name"); err == nil && name != "" {
		return name
	}
	return p.ModelAlias
}

// ropeOf takes all that the model's file says of the rotation of K. Of an unsaid base the architecture has its own.
func ropeOf(f *gguf.File, head modelfile.Head, context int) kv.RoPE {
	r := kv.RoPE{Type: "as " + head.Architecture, FreqFactors: head.Factors}
	var rest []string
	prefix := head.Architecture + ".rope."
	arrays := false
	for _, key := range f.WithPrefix(prefix) {
		if v := f.Meta[key]; v.Scalar != nil {
			rest = append(rest, strings.TrimPrefix(key, prefix)+"="+fmt.Sprint(v.Scalar))
		} else {
			arrays = true
		}
	}
	sort.Strings(rest)
	if arrays {
		if h, err := f.MetaHash(prefix); err != nil {
			rest = append(rest, err.Error())
		} else {
			rest = append(rest, "all="+h.String())
		}
	}
	if head.TwoSets { // which of them is used depends on the length of the context
		rest = append(rest, "n_ctx="+strconv.Itoa(context))
	}
	r.Scaling = strings.Join(rest, " ")
	return r
}
