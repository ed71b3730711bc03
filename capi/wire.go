//go:build cgo

package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// wireOptions are the options of dormouse_open.
type wireOptions struct {
	Budget          int64   `json:"budget"`
	MinFree         int64   `json:"min_free"`
	MaxBlocks       int64   `json:"max_blocks"`
	HighWater       float64 `json:"high_water"`
	LowWater        float64 `json:"low_water"`
	Eviction        string  `json:"eviction"`
	DepthCap        int     `json:"depth_cap"`
	Durability      string  `json:"durability"`
	Codec           string  `json:"codec"`
	Compression     string  `json:"compression"`
	SegmentBytes    int64   `json:"segment_bytes"`
	CheckpointMS    int64   `json:"checkpoint_ms"`
	CheckpointBytes int64   `json:"checkpoint_bytes"`
	ReadOnly        bool    `json:"read_only"`
	AllowSharedDir  bool    `json:"allow_shared_dir"`
}

// strictly decodes JSON that has no names but known ones.
func strictly(what, text string, v any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) { // it names Go's types and structs
			if wrong.Field != "" {
				what += ": " + wrong.Field
			}
			return badArgument("%s is %s: expected %s", what, given(wrong.Value), expected(wrong.Type))
		}
		return badArgument("%s: %s", what, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return badArgument("%s: something follows the JSON object", what)
	}
	return nil
}

// given is what json.UnmarshalTypeError.Value says, with an article.
func given(value string) string {
	switch value {
	case "array", "object":
		return "an " + value
	case "bool":
		return "true or false"
	case "string", "number":
		return "a " + value
	}
	return value // "number 1.5"
}

func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number below 2^63"
	case reflect.Float64:
		return "a number"
	case reflect.Float32:
		return "a number below 3.4e38"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

func parseOptions(text string) (o db.Options, err error) {
	var w wireOptions
	if text != "" {
		if err := strictly("options", text, &w); err != nil {
			return o, err
		}
	}
	o = db.Options{
		Budget: w.Budget, MinFree: w.MinFree, MaxBlocks: w.MaxBlocks, SegmentBytes: w.SegmentBytes, CheckpointBytes: w.CheckpointBytes,
		HighWater: w.HighWater, LowWater: w.LowWater, ReadOnly: w.ReadOnly, AllowSharedDir: w.AllowSharedDir,
	}
	if o.Policy, err = policy(w.Eviction, w.DepthCap); err != nil {
		return o, err
	}
	if o.CheckpointInterval, err = millis("options: checkpoint_ms", w.CheckpointMS); err != nil {
		return o, err
	}
	switch w.Durability {
	case "", "process":
	case "power":
		o.Durability = db.Power
	default:
		return o, badArgument("options: durability %q: expected process or power", w.Durability)
	}
	if o.Codec, o.Compression, err = codecs(w.Codec, w.Compression); err != nil {
		return o, err
	}
	if err := o.Validate(); err != nil {
		return o, badArgument("%v", err)
	}
	return o, nil
}

// policy is the order of eviction of that name.
func policy(name string, depthCap int) (db.Policy, error) {
	if depthCap != 0 && name != "depth-cap" {
		return nil, badArgument("options: depth_cap is %d: expected 0, for eviction is %q and not depth-cap", depthCap, name)
	}
	switch name {
	case "", "lru":
		return db.LRU(), nil
	case "fifo":
		return db.FIFO(), nil
	case "cost-aware":
		return db.CostAware(), nil
	case "depth-cap":
		if depthCap < 1 {
			return nil, badArgument("options: depth_cap is %d: expected a number of tokens, at least 1", depthCap)
		}
		return db.DepthCap(depthCap), nil
	}
	return nil, badArgument("options: eviction %q: expected lru, fifo, cost-aware or depth-cap", name)
}

// millis is a time in milliseconds, of which Go's clock has 292 years.
func millis(what string, ms int64) (time.Duration, error) {
	const most = int64(math.MaxInt64 / time.Millisecond)
	if ms > most || ms < -most {
		return 0, badArgument("%s is %d: expected at most %d", what, ms, most)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// codecs are a codec and a compression by name; empty: not chosen.
func codecs(codec, compression string) (c quant.Codec, z quant.Compression, err error) {
	if codec != "" {
		if c, err = quant.ParseCodec(codec); err != nil {
			return c, z, badArgument("%v", err)
		}
	}
	if compression != "" {
		if z, err = quant.ParseCompression(compression); err != nil {
			return c, z, badArgument("%v", err)
		}
	}
	return c, z, nil
}

// wireDescriptor is the descriptor of dormouse_register.
type wireDescriptor struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	Weights      string `json:"weights"`
	Tokenizer    string `json:"tokenizer"`
	RoPE         struct {
		Type        string  `json:"type"`
		Dims        int     `json:"dims"`
		Base        float32 `json:"base"`
		Scale       float32 `json:"scale"`
		Scaling     string  `json:"scaling"`
		FreqFactors string  `json:"freq_factors"`
	} `json:"rope"`
	Rotated     bool         `json:"rotated"`
	Shard       int          `json:"shard"`
	Shards      int          `json:"shards"`
	StateFormat string       `json:"state_format"`
	BlockTokens int          `json:"block_tokens"`
	Groups      []wireGroup  `json:"groups"`
	Tensors     []wireTensor `json:"tensors"`
}

type wireGroup struct {
	Kind   string `json:"kind"` // "all", "window" or "state"
	Window int    `json:"window"`
}

type wireTensor struct {
	Layer int    `json:"layer"`
	Role  string `json:"role"` // "K", "V" or "state"
	DType string `json:"dtype"`
	Width int    `json:"width"`
	Group int    `json:"group"`
}

func parseDescriptor(text string) (d kv.Descriptor, err error) {
	var w wireDescriptor
	if err := strictly("descriptor", text, &w); err != nil {
		return d, err
	}
	d = kv.Descriptor{
		Name: w.Name, Architecture: w.Architecture, Rotated: w.Rotated, Shard: w.Shard, Shards: w.Shards, StateFormat: w.StateFormat, BlockTokens: w.BlockTokens,
		RoPE: kv.RoPE{Type: w.RoPE.Type, Dims: w.RoPE.Dims, Base: w.RoPE.Base, Scale: w.RoPE.Scale, Scaling: w.RoPE.Scaling},
	}
	for _, h := range []struct {
		name, text string
		to         *kv.Hash
	}{{"weights", w.Weights, &d.Weights}, {"tokenizer", w.Tokenizer, &d.Tokenizer}, {"rope.freq_factors", w.RoPE.FreqFactors, &d.RoPE.FreqFactors}} {
		if err := parseHash("descriptor: "+h.name, h.text, h.to); err != nil {
			return d, err
		}
	}
	for i, g := range w.Groups {
		kind, ok := map[string]kv.GroupKind{"all": kv.All, "window": kv.Window, "state": kv.StateAt}[g.Kind]
		if !ok {
			return d, badArgument("descriptor: group %d is of kind %q, expected all, window or state", i, g.Kind)
		}
		d.Groups = append(d.Groups, kv.Group{Kind: kind, Window: g.Window})
	}
	for i, t := range w.Tensors {
		role, ok := map[string]kv.Role{"K": kv.RoleK, "V": kv.RoleV, "state": kv.RoleState}[t.Role]
		if !ok {
			return d, badArgument("descriptor: tensor %d has the role %q, expected K, V or state", i, t.Role)
		}
		dtype, err := parseDType(t.DType)
		if err != nil {
			return d, badArgument("descriptor: tensor %d: %v", i, err)
		}
		d.Tensors = append(d.Tensors, kv.Tensor{Layer: t.Layer, Role: role, DType: dtype, Width: t.Width, Group: t.Group})
	}
	return d, nil
}

// parseHash reads 32 digits; none leave the hash as it is.
func parseHash(what, text string, to *kv.Hash) error {
	if text == "" {
		return nil
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(to) {
		return badArgument("%s is %q, expected 32 hexadecimal digits: see dormouse_hash", what, text)
	}
	copy(to[:], b)
	return nil
}

func parseDType(name string) (kv.DType, error) {
	var names []string
	for t := kv.DType(1); t.Valid(); t++ {
		if t.String() == name {
			return t, nil
		}
		names = append(names, t.String())
	}
	return 0, fmt.Errorf("dtype %q: expected one of %s", name, strings.Join(names, ", "))
}
