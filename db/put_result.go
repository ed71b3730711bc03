package db

import "github.com/dormousekv/dormouse/quant"

// PutOptions say how rows are stored. The zero value is what the store was opened with.
type PutOptions struct {
	Codec       quant.Codec       // for float tensors
	Compression quant.Compression // kept per plane if it saves at least 5 %
	// NoStore stores nothing: the request wants to leave no trace.
	NoStore bool
	// KeepStates bounds how many states of each StateAt group stay stored on the way of the prompt: the first one and the last
	// KeepStates-1. The put gives up the others, as if they had been evicted, but for those that other prompts go on from,
	// that a ref names, that scopes share, or that an open match rests on. 1 is taken as 2; 0 or less: all stay.
	KeepStates int
}

// Validate returns an error that names the field at fault, its value, and what is allowed.
func (o PutOptions) Validate() error { return validCodecs("PutOptions", o.Codec, o.Compression) }

// PutResult says what a put did.
type PutResult struct {
	Tokens  int   // the prompt is now stored up to here
	Blocks  int   // blocks that were not stored before
	Records int   // records written
	Reused  int   // records that were stored already; their headers are whole, their rows were not read
	Bytes   int64 // bytes written
}
