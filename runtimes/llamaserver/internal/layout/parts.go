package layout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// Learn finds out how a server lays out its slot files: by how many caches with rows its model has.
func Learn(file []byte) (format state.FileFormat, err error) {
	found := 0
	for _, sections := range []int{1, 2, 0} {
		f, e := state.LearnFile(file, sections)
		switch {
		case e == nil:
			format = f
			found++
		case err == nil:
			err = e
		}
	}
	if found == 1 {
		return format, nil
	}
	return format, errors.Join(err, fmt.Errorf("a slot file can be read in %d ways", found))
}

// CheckState refuses a recurrent state that is not that after n tokens.
func (lay *Layout) CheckState(part []byte, n int) error {
	if lay.Format.Recurrent == nil {
		return nil
	}
	pos, err := lay.Format.Recurrent.Parse(part)
	if err == nil && pos+1 != n {
		err = fmt.Errorf("the recurrent state is that after %d tokens, expected %d", pos+1, n)
	}
	return err
}

// ErrOtherTokens says that a slot does not hold the prompt that it should.
var ErrOtherTokens = errors.New("the slot's tokens are not those of the prompt")

// copyRows copies rows that lie in the same pieces.
func copyRows(to, from kv.TensorRows) {
	for i := range to.Pieces {
		copy(to.Pieces[i].Mem, from.Pieces[i].Mem)
	}
}

// Part is a prompt of which a slot file has rows.
type Part struct {
	Prompt kv.Prompt
	Rows   kv.Rows
}

// Parts returns the tokens that a slot file holds and what can be stored of it. The prompt is the one that the slot was known to hold; if the file
// has other tokens, the error is ErrOtherTokens. A model with sliding windows, or with recurrent layers, has a part for each checkpoint: each has the
// window, or the state, at another place.
func (lay *Layout) Parts(file []byte, prompt kv.Prompt) (held []int32, out []Part, err error) {
	f, err := lay.Format.Parse(file)
	if err != nil {
		return nil, nil, err
	}
	n := min(len(f.Tokens), len(prompt.Tokens))
	if n == 0 {
		return nil, nil, nil // the server has cleared it
	}
	if !slices.Equal(f.Tokens[:n], prompt.Tokens[:n]) {
		return nil, nil, ErrOtherTokens
	}
	prompt = prompt.Prefix(n)
	prompt.Tokens = slices.Clone(f.Tokens)
	for i := range f.State.Sections {
		first, end, whole := f.State.Sections[i].Range()
		if i == windowSection {
			if end != len(prompt.Tokens) || !whole {
				return nil, nil, fmt.Errorf("of the window layers the slot has the positions [%d, %d), expected the last ones before %d", first, end, len(prompt.Tokens))
			}
		} else if first != 0 || end != len(prompt.Tokens) || !whole {
			return nil, nil, fmt.Errorf("the slot has the positions [%d, %d), expected [0, %d)", first, end, len(prompt.Tokens))
		}
	}
	if err := lay.CheckState(f.Recurrent, len(prompt.Tokens)); err != nil {
		return nil, nil, err
	}
	for _, c := range f.Checkpoints {
		n := int(c.Tokens)
		if n <= 0 || n >= len(prompt.Tokens) {
			continue
		}
		sections, recurrent := sectionsOf(f.State), c.Recurrent
		if lay.Window > 0 {
			if c.State == nil || len(c.State.Sections) != 1 {
				continue
			}
			sections[windowSection] = &c.State.Sections[0]
			if first, end, whole := sections[windowSection].Range(); !whole || end != n || first > max(0, n-lay.Window) {
				continue
			}
		}
		if lay.CheckState(recurrent, n) != nil {
			continue
		}
		out = append(out, Part{prompt.Prefix(n), lay.rows(sections, recurrent, n)})
	}
	return prompt.Tokens, append(out, Part{prompt, lay.RowsOf(f, len(prompt.Tokens))}), nil
}

// CopyWindows gives the checkpoints of a file the rows of its window section.
func (lay *Layout) CopyWindows(file *state.File) {
	for _, c := range file.Checkpoints {
		for layer := range c.State.Sections[0].Layers() {
			for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
				copyRows(c.State.Sections[0].Rows(layer, role), file.State.Sections[windowSection].Rows(layer, role))
			}
		}
	}
}
