package state

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrMedia is returned when the tokens of a slot file are not all there is to its prompt: it has images or sound in it.
var ErrMedia = errors.New("llama.cpp slot file has media in its prompt")

// Words of a slot file.
const (
	fileMagic       = 0x67677371 // "ggsq", read as a number
	trailerVersion  = 1
	packedMark      = -1 // no token is negative
	packedVersion   = 1
	packedWords     = 4  // of the packed list besides the tokens
	checkpointBytes = 40 // of a checkpoint besides its contents
)

/*
A slot file, as llama-server saves it (POST /slots/N?action=save), all integers little-endian, nothing padded:

	+--------------------------------------------------------------+
	| "qsgg" | version u32 | words u32 | words x i32               |
	| section, section, …: those of a blob, without a prefix       |
	| the recurrent part of models that have one                   |
	| nothing more, or "SCKP" | 1 u32 | count u32, and count times: |
	|   { n_tokens i64 | pos_min i32 | pos_max i32                  |
	|   | size u64 | blob | size u64 | draft | size u64 | spec }    |
	+--------------------------------------------------------------+

	words of a plain list:   the tokens
	words of a packed list:  -1 | 1 | tokens | the tokens | media, 0

The checkpoint's blob has a prefix, and of the rest the second section only, that of the layers with a sliding window, and the recurrent
part. draft and spec are states of speculative decoding.
*/

/*
What a server makes of a file that it restores (llama-server 0.7.0, measured). n are the file's tokens, the prompt begins with them and
has more, w is the model's sliding window (llama.cpp's n_swa), and "reused" is what the answer's timings.cache_n says.

	no window              n reused
	n >= w-1               n reused if the window section has the positions [n-w+1, n); with one row less, none
	n < w-1                none, unless there is a checkpoint {n, 0, n-1} with the positions [0, n): then n-1
	checkpoint of m < n    m-1 reused where the rest of the file is no use
	recurrent              n reused, without a checkpoint; m of a checkpoint where the prompt departs before n

A prompt that is just the n tokens of the file has n-1 reused, and needs one row more: the positions [n-w, n); of a recurrent model, none. One that departs k tokens before
the end of the file is judged by the prefix that they share, for which the window section then lacks k rows: cut a file to that prefix. A checkpoint
whose pos_max lies behind the prompt is dropped. A server believes a checkpoint's pos_min, and with --swa-full that all rows of the
window are there. It takes a file for its tokens whose recurrent part has no cell, and says something else; it aborts after one whose window
section has no cells. It ignores what follows the checkpoints, and a trailer that is cut off, and reads its own version only. It does not mind whose slot,
stream or sequence a file is from; the number of streams must be its own.
*/

// FileFormat is what all slot files of one server with one model have in common.
type FileFormat struct {
	Version   uint32     // 3, or 4 for files that say the rotation of the cache
	State     Format     // of a model without attention, without sections
	Recurrent *Recurrent // nil if no layer is recurrent
}

// Equal reports whether files of f and g have the same layout.
func (f FileFormat) Equal(g FileFormat) bool {
	if f.Recurrent != nil && g.Recurrent != nil {
		return f.Version == g.Version && f.State.Equal(g.State) && f.Recurrent.Equal(*g.Recurrent)
	}
	return f.Version == g.Version && f.State.Equal(g.State) && f.Recurrent == g.Recurrent
}

// tail is the format of a checkpoint's sections.
func (f FileFormat) tail() Format {
	if len(f.State.Sections) == 0 {
		return f.State
	}
	return f.State.Tail()
}

// File is a slot file, taken apart, or what one is laid out for ([FileFormat.Build]).
type File struct {
	Tokens      []int32
	Plain       bool         // Tokens are a plain list, not a packed one
	State       *State       // its Sequence is that of the cells: the slot's number
	Recurrent   []byte       // as it is: see [Recurrent.Parse]; of an empty slot, [Recurrent.Empty]
	Trailer     bool         // the file has the part in which checkpoints are
	Checkpoints []Checkpoint // in the order of the file: oldest first
}

// Checkpoint is what the layers with a window, and the recurrent ones, held when the sequence had fewer tokens. A server goes back to it when a
// prompt departs from the sequence's tokens where the file itself is no use.
type Checkpoint struct {
	Tokens         int64  // of the sequence then
	PosMin, PosMax int32  // what the cache held then; the rows in State may begin later than PosMin
	State          *State // the window section alone, if there is one
	Recurrent      []byte
	Draft, Spec    []byte // of speculative decoding; else empty
}

// Parse takes a file of that format apart. Memory is shared with b. Sections without cells are allowed, as an empty slot has
// them. A file that does not fit to its last byte is refused with [ErrBlob], one whose prompt has media with [ErrMedia].
// What the file says of positions and tokens is not compared: that is for the caller, who knows what they should be.
func (f FileFormat) Parse(b []byte) (*File, error) {
	u := f.State.unsaid()
	u.recurrent = f.Recurrent != nil
	version, file, err := parseFile(b, len(f.State.Sections), u)
	if err != nil {
		return nil, err
	}
	if version != f.Version {
		return nil, fmt.Errorf("%w: offset 4: version is %d, expected %d", ErrBlob, version, f.Version)
	}
	if err := f.fits(file); err != nil {
		return nil, err
	}
	return file, nil
}

func (f FileFormat) fits(file *File) error {
	if err := errors.Join(f.State.fits(file.State), f.fitsPart(file.Recurrent)); err != nil {
		return err
	}
	for i, c := range file.Checkpoints {
		if err := errors.Join(f.tail().fits(c.State), f.fitsPart(c.Recurrent)); err != nil {
			return fmt.Errorf("checkpoint %d: %w", i, err)
		}
	}
	return nil
}

func (f FileFormat) fitsPart(part []byte) error {
	if f.Recurrent == nil {
		return nil // there is none: none was read
	}
	r := reader{b: part}
	found, _, _ := r.recurrent()
	if r.err != nil {
		return r.err
	}
	return f.Recurrent.fits(found)
}

// LearnFile finds out the format from a file in which every section has cells, as [Learn] does from a blob, and whether there is a
// recurrent part. sections is how many caches with rows the model has: none if it is all recurrent, 1, or 2 with sliding windows.
func LearnFile(b []byte, sections int) (FileFormat, error) {
	if sections < 0 || sections > maxSections {
		return FileFormat{}, fmt.Errorf("%w: %d sections, at most %d", ErrBlob, sections, maxSections)
	}
	layouts := fileLayouts
	if sections == 0 {
		layouts = []unsaid{{hasV: true, recurrent: true}} // there is nothing else to find out
	}
	return learnBy(layouts, func(u unsaid) (FileFormat, error) { return learnFile(b, sections, u) })
}

var fileLayouts = func() (all []unsaid) {
	for _, recurrent := range []bool{false, true} {
		for _, u := range layouts {
			u.recurrent = recurrent
			all = append(all, u)
		}
	}
	return all
}()

func learnFile(b []byte, sections int, u unsaid) (FileFormat, error) {
	version, file, err := parseFile(b, sections, u)
	if err != nil {
		return FileFormat{}, err
	}
	f := FileFormat{Version: version}
	if f.State, err = formatOf(file.State, u); err != nil {
		return FileFormat{}, err
	}
	if u.recurrent {
		r, err := LearnRecurrent(file.Recurrent)
		if err != nil {
			return FileFormat{}, err
		}
		f.Recurrent = &r
	}
	if err := f.fits(file); err != nil {
		return FileFormat{}, err
	}
	built, again := f.Build(nil, file)
	built.copyRows(file)
	if !bytes.Equal(b, again) {
		return FileFormat{}, fmt.Errorf("%w: built again it differs", ErrBlob)
	}
	return f, nil
}

func parseFile(b []byte, sections int, u unsaid) (version uint32, file *File, err error) {
	r := reader{b: b}
	if m := r.u32("magic"); r.err == nil && m != fileMagic {
		r.fail("magic", m, uint32(fileMagic))
	}
	if version = r.u32("version"); r.err == nil && version != 3 && version != 4 {
		r.fail("version", version, "3 or 4")
	}
	file = &File{State: &State{}}
	media := r.tokens(file)
	if r.err == nil && media {
		return version, nil, ErrMedia
	}
	for range sections {
		file.State.Sections = append(file.State.Sections, r.section(u))
	}
	file.State.Sequence = r.sequence
	if u.recurrent {
		file.Recurrent = r.part()
	}
	if file.Trailer = r.left() > 0; file.Trailer {
		r.checkpoints(file, max(0, sections-1), u)
	}
	r.end("file")
	if r.err != nil {
		return version, nil, r.err
	}
	return version, file, nil
}

// tokens reads the list, and reports whether there is more to the prompt.
func (r *reader) tokens(file *File) (media bool) {
	words := r.count("words of the token list", r.left()/4)
	end := r.at + 4*words
	file.Plain = words == 0 || r.peek() != packedMark
	n := words
	if !file.Plain {
		r.u32("mark of a packed list")
		if v := r.u32("version of a packed list"); r.err == nil && v != packedVersion {
			r.fail("version of a packed list", v, packedVersion)
		}
		n = r.count("tokens", max(0, words-packedWords))
	}
	if r.err != nil {
		return false
	}
	file.Tokens = make([]int32, n)
	negative := false
	for i := range file.Tokens {
		file.Tokens[i] = int32(r.u32("token"))
		negative = negative || file.Tokens[i] < 0
	}
	if !file.Plain && r.u32("media") != 0 {
		return true
	}
	if r.err == nil && negative {
		r.fail("a token", "negative", "at least 0")
	}
	if r.err == nil && r.at != end {
		r.fail("end of the token list", r.at, end)
	}
	return false
}

// part reads a recurrent part.
func (r *reader) part() []byte {
	first := r.at
	r.recurrent()
	return r.b[first:r.at:r.at]
}

func (r *reader) checkpoints(file *File, sections int, u unsaid) {
	if m := r.u32("magic of checkpoints"); r.err == nil && m != trailerMagic {
		r.fail("magic of checkpoints", m, uint32(trailerMagic))
	}
	if v := r.u32("version of checkpoints"); r.err == nil && v != trailerVersion {
		r.fail("version of checkpoints", v, trailerVersion)
	}
	n := r.count("checkpoints", r.left()/checkpointBytes)
	if r.err == nil && n > 0 && sections == 0 && !u.recurrent {
		r.fail("checkpoints", n, "0: the cache has no window")
	}
	for i := 0; i < n && r.err == nil; i++ {
		c := Checkpoint{Tokens: int64(r.u64("n_tokens"))}
		c.PosMin, c.PosMax = int32(r.u32("pos_min")), int32(r.u32("pos_max"))
		size := r.u64("size of a checkpoint")
		blob := reader{b: r.b, at: r.at}
		if r.bytes("a checkpoint", size); r.err != nil {
			return
		}
		blob.b = blob.b[:r.at:r.at]
		c.State = blob.blob(sections, u)
		if u.recurrent {
			c.Recurrent = blob.part()
		}
		blob.end("a checkpoint")
		r.err = blob.err
		c.Draft = r.bytes("draft", r.u64("size of draft"))
		c.Spec = r.bytes("spec", r.u64("size of spec"))
		file.Checkpoints = append(file.Checkpoints, c)
	}
}
