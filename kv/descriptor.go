package kv

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrDescriptor is returned when a descriptor contradicts itself, or does not say which model it is of; the message names
// the field.
var ErrDescriptor = errors.New("kv: invalid model descriptor")

// Limits of a descriptor. They bound what is allocated for one that comes from a file.
const (
	MaxTensors     = 1 << 14
	MaxGroups      = 16
	MaxWidth       = 1 << 24
	MinBlockTokens = 16
	MaxBlockTokens = 512
)

// Descriptor holds all that makes two KV caches incompatible. Nothing in it differs between two runs of one model:
// not the context size, the threads, or flash attention. Its [Descriptor.Fingerprint] names a version of the model.
//
// Weights, Architecture, Tokenizer and RoPE.Type have no default: two models of one shape would share rows. Nor has Name: of two
// models with one name, the later one is the newer version of the other. [Descriptor.Validate] refuses a descriptor without one of
// them. A toy that has no weights file says [HashOf]("my toy").
type Descriptor struct {
	Name         string // what people call it; not part of the fingerprint
	Weights      Hash   // of all bytes of the weights file
	Architecture string // "llama", "gemma3"
	Tokenizer    Hash   // of the vocabulary and all that says how text becomes tokens
	RoPE         RoPE
	Rotated      bool   // K and V are Hadamard-rotated before they are stored
	Shard        int    // rank of this part of a model that is split over devices
	Shards       int    // 0 and 1 both mean: not split
	StateFormat  string // what else ties the tensors to a runtime: the version of its opaque states, a rotation of another kind

	// BlockTokens is the tokens a block holds, a power of two of 16 to 512. 0 chooses: 64, or as many as it takes for
	// the records of the All group to have 32 KiB.
	BlockTokens int

	// Groups are the coverage rules. Groups[0] is the All group; it may have no tensors, when nothing of the model can be
	// cut at a token (then its records hold only tokens). Nil means one All group.
	Groups []Group

	// Tensors are all that has rows or a state, at least one. No two have the same Layer and Role, unless they are states.
	Tensors []Tensor
}

// RoPE is how positions are rotated into K before it is stored.
type RoPE struct {
	Type        string  // "norm", "neox", "mrope", …; [NoRoPE] where K holds no rotation. Empty means: not said
	Dims        int     // rotated dimensions of a head
	Base        float32 // theta, above 0 where Type is "norm" or "neox"
	Scale       float32 // frequency scale
	Scaling     string  // "none", "linear", "yarn", "longrope", with its parameters as the runtime spells them
	FreqFactors Hash    // of the frequency factors, zero if none
}

// NoRoPE is the RoPE.Type of models that rotate nothing into K: recurrent ones, and those with learned positions or none.
const NoRoPE = "none"

// GroupKind is a rule that says which rows of a group's tensors a restore needs. The numbers are stored.
type GroupKind uint8

const (
	All     GroupKind = iota + 1 // every row before P
	Window                       // the last Window rows before P
	StateAt                      // a state that is valid at exactly P
)

// Valid reports whether k is a known kind.
func (k GroupKind) Valid() bool { return k >= All && k <= StateAt }

func (k GroupKind) String() string {
	switch k {
	case All:
		return "all"
	case Window:
		return "window"
	case StateAt:
		return "state"
	}
	return fmt.Sprintf("group(%d)", uint8(k))
}

// Group is tensors with the same coverage rule.
type Group struct {
	Kind   GroupKind
	Window int // rows, for kind Window
}

func (g Group) String() string {
	if g.Kind == Window {
		return fmt.Sprintf("window(%d)", g.Window)
	}
	return g.Kind.String()
}

// Role is what a tensor is for. The numbers are stored.
type Role uint8

const (
	RoleK Role = iota + 1
	RoleV
	RoleState // anything else
)

// Valid reports whether r is a known role.
func (r Role) Valid() bool { return r >= RoleK && r <= RoleState }

func (r Role) String() string {
	switch r {
	case RoleK:
		return "K"
	case RoleV:
		return "V"
	case RoleState:
		return "state"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Tensor is one layer's K or V, or another state.
type Tensor struct {
	Layer int
	Role  Role
	DType DType
	Width int // values in a row: kv_heads x head_dim. 0, in a StateAt group of Bytes: the state's length varies
	Group int // index in Descriptor.Groups
}

// RowBytes is the size of one row in the caller's memory; 0 if it varies.
func (t Tensor) RowBytes() int { return t.DType.RowBytes(t.Width) }

func (t Tensor) String() string { return fmt.Sprintf("layer %d %s", t.Layer, t.Role) }

// Validate returns an error that wraps [ErrDescriptor] and names the field, if d does not say which model it is of, is not complete, or
// contradicts itself. A store asks this of every model that is new to it.
func (d Descriptor) Validate() error {
	if err := d.identity(); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrDescriptor, fmt.Sprintf(format, args...))
	}
	if d.Name == "" {
		return bad("Name is not said: expected what people call the model. Of two models with one name, the later one is the newer version of the other")
	}
	if d.RoPE.Base <= 0 && (d.RoPE.Type == "norm" || d.RoPE.Type == "neox") {
		return bad("RoPE.Base is %g and RoPE.Type %q: expected a base above 0, as 10000; or the type %q, if nothing is rotated", d.RoPE.Base, d.RoPE.Type, NoRoPE)
	}
	if len(d.Tensors) == 0 {
		return bad("Tensors is empty: expected the K and V of each layer, or a state")
	}
	type place struct {
		layer int
		role  Role
	}
	first := map[place]int{}
	for i, t := range d.Tensors {
		at := place{t.Layer, t.Role}
		if j, twice := first[at]; twice && t.Role != RoleState {
			return bad("Tensors[%d] is %s, and so is Tensors[%d]: expected one of each layer and role", i, t, j)
		}
		first[at] = i
	}
	_, err := d.Normal()
	return err
}

// identity is the part of [Descriptor.Validate] without which models would share rows.
func (d Descriptor) identity() error {
	for _, f := range []struct {
		missing     bool
		field, what string
	}{
		{d.Weights == Hash{}, "Weights", "the hash of the weights file, or HashOf the name of a toy"},
		{d.Tokenizer == Hash{}, "Tokenizer", "the hash of the vocabulary, or HashOf its name"},
		{d.Architecture == "", "Architecture", "the kind of model, as \"llama\""},
		{d.RoPE.Type == "", "RoPE.Type", "how positions are rotated into K, as \"neox\"; \"none\" if they are not"},
	} {
		if f.missing {
			return fmt.Errorf("%w: %s is not said: expected %s. Models that differ in it alone would share rows", ErrDescriptor, f.field, f.what)
		}
	}
	if math.IsInf(float64(d.RoPE.Base), 0) || math.IsInf(float64(d.RoPE.Scale), 0) {
		return fmt.Errorf("%w: RoPE.Base is %g and RoPE.Scale %g: expected finite numbers", ErrDescriptor, d.RoPE.Base, d.RoPE.Scale)
	}
	return nil
}

// Normal returns d with its defaults filled in, in memory of its own, or an error that wraps [ErrDescriptor]. Two descriptors
// of one model are equal when their normal forms are. It does not ask for what [Descriptor.Validate] does: a store may have a
// descriptor that a later release refuses.
func (d Descriptor) Normal() (Descriptor, error) {
	bad := func(format string, args ...any) (Descriptor, error) {
		return Descriptor{}, fmt.Errorf("%w: %s", ErrDescriptor, fmt.Sprintf(format, args...))
	}
	if len(d.Groups) == 0 {
		d.Groups = []Group{{Kind: All}}
	}
	if len(d.Groups) > MaxGroups {
		return bad("%d groups, at most %d", len(d.Groups), MaxGroups)
	}
	d.Groups = slices.Clone(d.Groups)
	for i, g := range d.Groups {
		switch {
		case (i == 0) != (g.Kind == All):
			return bad("group %d is %s: the first group is the All group, and the only one", i, g)
		case !g.Kind.Valid():
			return bad("group %d has unknown kind %d", i, g.Kind)
		case (g.Kind == Window) != (g.Window > 0), g.Window < 0, g.Window > math.MaxInt32:
			return bad("group %d is %s with a window of %d rows", i, g.Kind, g.Window)
		}
	}
	if d.RoPE.Dims < 0 || d.RoPE.Dims > math.MaxInt32 {
		return bad("%d rotated dimensions", d.RoPE.Dims)
	}
	if d.RoPE.Base != d.RoPE.Base || d.RoPE.Scale != d.RoPE.Scale {
		return bad("RoPE base %g and scale %g", d.RoPE.Base, d.RoPE.Scale)
	}
	for _, f := range []*float32{&d.RoPE.Base, &d.RoPE.Scale} {
		if *f == 0 {
			*f = 0 // not -0, whose bits, and so whose fingerprint, differ
		}
	}
	if len(d.Tensors) > MaxTensors {
		return bad("%d tensors, at most %d", len(d.Tensors), MaxTensors)
	}
	d.Tensors = slices.Clone(d.Tensors)
	for i, t := range d.Tensors {
		switch {
		case t.Group < 0 || t.Group >= len(d.Groups):
			return bad("tensor %d is in group %d of %d", i, t.Group, len(d.Groups))
		case !t.DType.Valid():
			return bad("tensor %d has unknown dtype %d", i, t.DType)
		case !t.Role.Valid():
			return bad("tensor %d has unknown role %d", i, t.Role)
		case t.Layer < 0 || t.Layer > math.MaxInt32:
			return bad("tensor %d has layer %d", i, t.Layer)
		case t.Width < 0 || t.Width > MaxWidth:
			return bad("tensor %d has a width of %d values, at most %d", i, t.Width, MaxWidth)
		case t.Width == 0 && (t.DType != Bytes || d.Groups[t.Group].Kind != StateAt):
			return bad("tensor %d has width 0, which only a bytes tensor of a StateAt group may have", i)
		case t.Width%t.DType.Group() != 0:
			return bad("tensor %d has a width of %d values, not a multiple of %s's %d", i, t.Width, t.DType, t.DType.Group())
		}
	}
	if d.Shards <= 1 {
		d.Shards = 1
	}
	if d.Shard < 0 || d.Shard >= d.Shards || d.Shards > math.MaxInt32 {
		return bad("shard %d of %d", d.Shard, d.Shards)
	}
	if d.BlockTokens == 0 {
		d.BlockTokens = d.defaultBlockTokens()
	}
	if n := d.BlockTokens; n < MinBlockTokens || n > MaxBlockTokens || n&(n-1) != 0 {
		return bad("blocks of %d tokens: a power of two from %d to %d", n, MinBlockTokens, MaxBlockTokens)
	}
	return d, nil
}

// defaultBlockTokens is 64, or as many tokens as make a record of the All group, in INT8, at least 32 KiB.
func (d *Descriptor) defaultBlockTokens() int {
	const wantBytes = 32 << 10
	perToken := 0
	for _, t := range d.Tensors {
		if t.Group != 0 {
			continue
		}
		if t.DType.IsFloat() {
			perToken += Q8_0.RowBytes(t.Width)
		} else {
			perToken += t.RowBytes()
		}
	}
	n := 64
	for n < MaxBlockTokens && n*perToken < wantBytes {
		n *= 2
	}
	return n
}

// GroupTensors returns the indexes of the tensors of group g, in order.
func (d *Descriptor) GroupTensors(g int) []int {
	var ids []int
	for i, t := range d.Tensors {
		if t.Group == g {
			ids = append(ids, i)
		}
	}
	return ids
}

// TokenBytes is the size of one token's rows in the caller's memory, all groups but StateAt.
func (d *Descriptor) TokenBytes() int {
	n := 0
	for _, t := range d.Tensors {
		if d.Groups[t.Group].Kind != StateAt {
			n += t.RowBytes()
		}
	}
	return n
}
