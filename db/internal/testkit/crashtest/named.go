package crashtest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/dormousekv/dormouse/kv"
)

var models = sync.OnceValue(func() map[string]kv.Descriptor {
	other, long := Plain(), Plain()
	other.Weights = kv.HashOf("another toy")
	all := map[string]kv.Descriptor{
		"plain": Plain(), "window": Windowed(40), "state": Opaque(), "other": other, "hybrid": Hybrid(), "long": long,
	}
	for name, d := range all {
		if d.Name, d.BlockTokens = name, 32; name == "long" {
			d.Name = strings.Repeat("a long name ", 1000)
		}
		all[name], _ = d.Normal()
	}
	return all
})

// Model is one of the models that scripts use, by its name there.
func Model(name string) kv.Descriptor { return models()[name] }

var chats sync.Map // by model, name and length

// Named is the prompt of that name in scripts, n tokens of it.
func Named(model, name string, n int) *Chat {
	key := fmt.Sprint(model, " ", name, " ", n)
	if x, ok := chats.Load(key); ok {
		return x.(*Chat)
	}
	letters, scope, _ := strings.Cut(name, "@")
	var all []kv.Token
	own := -1
	for i := range strings.Split(letters, "/") {
		letter := int(letters[2*i])
		own = 64*i - 1
		all = Concat(all[:64*i], []kv.Token{kv.Token(5000 + letter)}, Tokens(200+letter, max(n, 64)))
	}
	p := kv.Prompt{Tokens: all[:n:n]}
	if scope != "" {
		p.Scope, p.ScopeStart = scope, own+1
	}
	x := NewChat(Model(model), p, own)
	chats.Store(key, x)
	return x
}
