package canary

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/portrait"
)

// Position is where the canary is evaluated, or near the end of what the model was trained for. At position 0 no rotation does
// anything, and at 100 the slow ones of a model with a large frequency base do little.
const Position = 1000

// Length is how many tokens are evaluated. The first one attends to itself alone, whatever its query is, so of two tokens
// queries show in half of one. With 16, rounding grows as much as what is looked for, and it takes twice the time.
const Length = 8

// Canary is what a context computes for some tokens, at a position where every setting shows. Its note is stored on the
// model, once for each set of adapters, and every Attach compares it.
type Canary struct {
	Tokens   []kv.Token
	Position int
	Settings []string       // "name value" of what llama.cpp tells: they don't decide, but help who looks for the difference
	Noise    portrait.Noise // how far rounding alone moves the rows
	Portrait portrait.Portrait
}

// Against compares what a context computes now with what is stored. If nothing showed what rounding does, and llama.cpp tells the same
// settings as then, the model is taken for one in which it does least: some releases compute the same bits whatever the batches are.
func (c Canary) Against(now Canary) portrait.Difference {
	n := c.Noise
	if n.Most == 0 && len(c.Differs(now)) == 0 {
		n.Most = math.SmallestNonzeroFloat64
	}
	return c.Portrait.Against(now.Portrait, n)
}

// Differs lists the settings that are not what they were.
func (c Canary) Differs(now Canary) (out []string) {
	was := map[string]string{}
	for _, x := range c.Settings {
		name, value, _ := strings.Cut(x, " ")
		was[name] = value
	}
	for _, x := range now.Settings {
		name, value, _ := strings.Cut(x, " ")
		if old, ok := was[name]; ok && old != value {
			out = append(out, fmt.Sprintf("%s: %s, now %s", name, old, value))
		}
	}
	return out
}

// magic begins a note. Release 0.1.0-dev wrote "canary 1", of two tokens.
const magic = "canary 2\n"

// mostTokens bounds what a note may say.
const mostTokens = 64

// Encode lays the canary out: a line that says so, u32 position, noise (two f32), number of tokens and length of the settings, the tokens
// (u32), the settings in lines, the portrait.
func (c Canary) Encode() []byte {
	lines := strings.Join(c.Settings, "\n")
	lines = lines[:min(len(lines), 1<<10)]
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.Position))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(c.Noise.Most)))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(c.Noise.Mean)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.Tokens)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(lines)))
	for _, t := range c.Tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return c.Portrait.Append(append(b, lines...))
}

// Decode reads what Encode wrote. What another release wrote is no canary.
func Decode(b []byte) (c Canary, ok bool) {
	if b, ok = bytes.CutPrefix(b, []byte(magic)); !ok || len(b) < 20 {
		return c, false
	}
	number := func(i int) int { return int(int32(binary.LittleEndian.Uint32(b[4*i:]))) }
	real := func(i int) float64 { return float64(math.Float32frombits(uint32(number(i)))) }
	tokens, lines := number(3), number(4)
	c.Position, c.Noise = number(0), portrait.Noise{Most: real(1), Mean: real(2)}
	b = b[20:]
	if tokens <= 0 || tokens > mostTokens || lines < 0 || c.Position < 0 || !(c.Noise.Most >= 0 && c.Noise.Mean >= 0) || len(b)-4*tokens < lines {
		return c, false
	}
	for i := range tokens {
		if c.Tokens = append(c.Tokens, kv.Token(number(i))); c.Tokens[i] < 0 {
			return c, false
		}
	}
	b = b[4*tokens:]
	c.Settings = strings.Split(string(b[:lines]), "\n")
	c.Portrait, ok = portrait.Decode(b[lines:])
	return c, ok
}
