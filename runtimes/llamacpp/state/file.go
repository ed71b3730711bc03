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
	trailerMagic    = 0x504b4353 // "SCKP", read as a number
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
	| nothing more, or "SCKP" | 1 u32 | count u32, and count times: |
	|   { n_tokens i64 | pos_min i32 | pos_max i32                  |
	|   | size u64 | blob | size u64 | draft | size u64 | spec }    |
	+--------------------------------------------------------------+

	words of a plain list:   the tokens
	words of a packed list:  -1 | 1 | tokens | the tokens | media, 0

The checkpoint's blob is one with a prefix that holds the last section only: the layers with a sliding window. draft and spec are
states of speculative decoding.
*/

/*
What a server makes of a file that it restores (llama-server 0.7.0, measured). n are the file's tokens, the prompt begins with them and
has more, w is the model's sliding window (llama.cpp's n_swa), and "reused" is what the answer's timings.cache_n says.

	no window              n reused
	n >= w-1               n reused if the window section has the positions [n-w+1, n); with one row less, none
	n < w-1                none, unless there is a checkpoint {n, 0, n-1} with the positions [0, n): then n-1
	checkpoint of m < n    m-1 reused where the rest of the file is no use

A prompt that is just the n tokens of the file has n-1 reused, and needs one row more: the positions [n-w, n). One that departs k tokens before
the end of the file is judged by the prefix that they share, for which the window section then lacks k rows: cut a file to that prefix. A checkpoint
whose pos_max lies behind the prompt is dropped. A server believes a checkpoint's pos_min. It uses a file with a window section without
cells for its tokens, and aborts. It ignores what follows the checkpoints, and a trailer that is cut off, and reads its own version only. It does not mind whose slot,
stream or sequence a file is from; the number of streams must be its own.
*/

// FileFormat is what all slot files of one server with one model have in common.
type FileFormat struct {
	Version uint32 // 3, or 4 for files that say the rotation of the cache
	State   Format
}

// Equal reports whether files of f and g have the same layout.
func (f FileFormat) Equal(g FileFormat) bool { return f.Version == g.Version && f.State.Equal(g.State) }

// File is a slot file, taken apart, or what one is laid out for ([FileFormat.Build]).
type File struct {
	Tokens      []int32
	Plain       bool         // Tokens are a plain list, not a packed one
	State       *State       // its Sequence is that of the cells: the slot's number
	Trailer     bool         // the file has the part in which checkpoints are
	Checkpoints []Checkpoint // in the order of the file: oldest first
}

// Checkpoint is what the window layers held when the sequence had fewer tokens. A server goes back to it when a prompt departs from
// the sequence's tokens before the window that the file holds.
type Checkpoint struct {
	Tokens         int64  // of the sequence then
	PosMin, PosMax int32  // what the cache held then; the rows in State may begin later than PosMin
	State          *State // the window section alone: FileFormat.State.Tail()
	Draft, Spec    []byte // of speculative decoding; else empty
}

// Parse takes a file of that format apart. Memory is shared with b. Sections without cells are allowed, as an empty slot has
// them. A file that does not fit to its last byte is refused with [ErrBlob], one whose prompt has media with [ErrMedia].
// What the file says of positions and tokens is not compared: that is for the caller, who knows what they should be.
func (f FileFormat) Parse(b []byte) (*File, error) {
	version, file, err := parseFile(b, len(f.State.Sections), unsaid{f.State.ExtBytes, f.State.HasRotation, f.State.HasV()})
	if err != nil {
		return nil, err
	}
	if version != f.Version {
		return nil, fmt.Errorf("%w: offset 4: version is %d, expected %d", ErrBlob, version, f.Version)
	}
	return file, f.fits(file)
}

func (f FileFormat) fits(file *File) error {
	if err := f.State.fits(file.State); err != nil {
		return err
	}
	for i, c := range file.Checkpoints {
		if err := f.State.Tail().fits(c.State); err != nil {
			return fmt.Errorf("checkpoint %d: %w", i, err)
		}
	}
	return nil
}

// LearnFile finds out the format from a file in which every section has cells, as [Learn] does from a blob.
func LearnFile(b []byte, sections int) (FileFormat, error) {
	return learnBy(sections, func(u unsaid) (FileFormat, error) {
		version, file, err := parseFile(b, sections, u)
		if err != nil {
			return FileFormat{}, err
		}
		f := FileFormat{Version: version}
		if f.State, err = formatOf(file.State, u); err != nil {
			return FileFormat{}, err
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
	})
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
	if file.Trailer = r.left() > 0; file.Trailer {
		r.checkpoints(file, sections-1, u)
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

func (r *reader) checkpoints(file *File, sections int, u unsaid) {
	if m := r.u32("magic of checkpoints"); r.err == nil && m != trailerMagic {
		r.fail("magic of checkpoints", m, uint32(trailerMagic))
	}
	if v := r.u32("version of checkpoints"); r.err == nil && v != trailerVersion {
		r.fail("version of checkpoints", v, trailerVersion)
	}
	n := r.count("checkpoints", r.left()/checkpointBytes)
	if r.err == nil && n > 0 && sections < 1 {
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
		r.err = blob.err
		c.Draft = r.bytes("draft", r.u64("size of draft"))
		c.Spec = r.bytes("spec", r.u64("size of spec"))
		file.Checkpoints = append(file.Checkpoints, c)
	}
}
