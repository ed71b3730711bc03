package llamaserver

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
)

// formatNote names the note in which a model remembers how a server's slot files look: everything that was said to the server goes into it.
func formatNote(a *Arguments, p api.Props) string {
	h := kv.HashOf(fmt.Sprintf("%q %q %q %d %d", a.args, a.settings, p.Build, p.TotalSlots, p.Defaults.Context))
	return "llama-server slot files " + h.String()
}

// recall finds the model of a store that a server runs, if slot files of such a server were seen before.
func recall(store *db.Store, id *layout.Identity, note string) (*db.Model, *layout.Layout, error) {
	for st, err := range store.Models() {
		if err != nil {
			return nil, nil, err
		}
		if d := st.Descriptor; st.Err != nil || d.Weights != id.Desc.Weights || d.Tokenizer != id.Desc.Tokenizer || d.Architecture != id.Desc.Architecture {
			continue
		}
		m, err := store.Model(st.Fingerprint)
		if err != nil {
			return nil, nil, err
		}
		value, err := m.Note(note)
		if err != nil {
			continue
		}
		var format state.FileFormat
		if err := json.Unmarshal(value, &format); err != nil {
			return nil, nil, err
		}
		desc, lay, err := id.Describe(format)
		if err == nil {
			desc, err = desc.Normal()
		}
		if err != nil || desc.Fingerprint() != st.Fingerprint { // another build, or other arguments
			continue
		}
		return m, lay, nil
	}
	return nil, nil, nil
}

// stores reports whether a store has rows of a model that such a server computes.
func stores(store *db.Store, id *layout.Identity) bool {
	for st, err := range store.Models() {
		if err != nil {
			return false
		}
		if d := st.Descriptor; st.Err == nil && st.Records > 0 && d.Weights == id.Desc.Weights && strings.HasPrefix(d.StateFormat, id.Desc.StateFormat) {
			return true
		}
	}
	return false
}
