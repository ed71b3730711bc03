package main

import "time"

// inventory is everything that inspect shows. Its fields are the JSON document; a nil list is left out of it.
type inventory struct {
	Dir        string          `json:"dir"`
	AsOf       time.Time       `json:"as_of"`         // when that was so
	Writing    bool            `json:"beside_writer"` // a process has the store open, and as_of is its last checkpoint; zero: it has made none
	Version    uint32          `json:"format_version"`
	UUID       string          `json:"uuid"`
	DiskBytes  int64           `json:"disk_bytes"`
	LiveBytes  int64           `json:"live_bytes"`
	Blocks     []blockLine     `json:"blocks,omitempty"`
	BlockCount int64           `json:"block_count"`
	Records    int64           `json:"record_count"`
	Damaged    int             `json:"damaged_records"`
	Gone       int             `json:"gone_records"` // destroyed since by the process that writes
	Problems   []string        `json:"problems"`     // damage
	places     []place         // Problems, with their files
	Notes      []string        `json:"notes"` // what is odd and costs nothing
	Models     []modelLine     `json:"models,omitzero"`
	Scopes     []scopeLine     `json:"scopes,omitzero"`
	Refs       []refLine       `json:"refs,omitzero"`
	Sessions   []sessionLine   `json:"sessions,omitzero"`
	Codecs     []codecLine     `json:"codecs,omitzero"`
	Segments   []segmentLine   `json:"segments,omitzero"`
	Log        []logLine       `json:"log,omitzero"`
	Tombstones []tombstoneLine `json:"tombstones,omitzero"`
	Bloom      *bloomLine      `json:"bloom,omitempty"`
}

type modelLine struct {
	Name         string   `json:"name"`
	Fingerprint  string   `json:"fingerprint"`
	Latest       bool     `json:"latest"`
	Architecture string   `json:"architecture"`
	Tensors      int      `json:"tensors"`
	Groups       []string `json:"groups"`
	BlockTokens  int      `json:"block_tokens"`
	TokenBytes   int      `json:"token_bytes"`
	Blocks       int64    `json:"blocks"`
	Records      int64    `json:"records"`
	Bytes        int64    `json:"bytes"`
}

type blockLine struct {
	Key     string `json:"key"`
	Parent  string `json:"parent"`
	Group   int    `json:"group"`
	Model   string `json:"model"`
	Scope   string `json:"scope,omitempty"`
	First   int    `json:"first"`
	Tokens  int    `json:"tokens"`
	Rows    int    `json:"rows"`
	Bytes   int64  `json:"bytes"`
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
	// Hits are the matches that used the block: that ended in it, or below it in what is stored now. Ended are the former.
	Hits     int64     `json:"hits"`
	Ended    uint32    `json:"hits_ended"`
	Created  time.Time `json:"created,omitzero"`   // to the second
	LastUsed time.Time `json:"last_used,omitzero"` // to the minute; zero if that is not known
	Damaged  bool      `json:"damaged"`
	Partial  bool      `json:"partial"`
}

type scopeLine struct {
	ID       string    `json:"-"` // empty: what scopes share
	Scope    string    `json:"scope"`
	Name     string    `json:"name,omitempty"` // if the user gave it
	Blocks   int       `json:"blocks"`
	Records  int       `json:"records"`
	Bytes    int64     `json:"bytes"`
	Hits     int64     `json:"hits"` // matches that used a block of it
	LastUsed time.Time `json:"last_used,omitzero"`
}

type refLine struct {
	Name      string    `json:"name"`
	Model     string    `json:"model"`
	Block     string    `json:"block"`
	Tokens    int       `json:"tokens"`
	Pinned    bool      `json:"pinned"`
	Priority  uint8     `json:"priority"`
	Set       time.Time `json:"set,omitzero"`
	LastUsed  time.Time `json:"last_used,omitzero"` // of its block and what is stored behind it; zero if that is not known
	Expires   time.Time `json:"expires,omitzero"`
	MetaBytes int       `json:"meta_bytes"`
	Stored    bool      `json:"stored"`
}

type sessionLine struct {
	Scope    string    `json:"scope"`
	Name     string    `json:"name,omitempty"` // if the user gave it
	Frames   int       `json:"frames"`         // before damage, if there is some
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified,omitzero"`
	Damaged  bool      `json:"damaged"`
}

type codecLine struct {
	Codec       string  `json:"codec"`
	Compression string  `json:"compression"`
	Planes      int     `json:"planes"`
	Bytes       int64   `json:"bytes"`
	Exceptions  int     `json:"exceptions"`
	MaxError    float32 `json:"max_error"`
}

type segmentLine struct {
	ID        uint64 `json:"id"`
	Model     string `json:"model"`
	Sealed    bool   `json:"sealed"`
	Size      int64  `json:"size"`
	Allocated int64  `json:"allocated"`
	Records   int64  `json:"live_records"`
	LiveBytes int64  `json:"live_bytes"`
}

type logLine struct {
	ID       uint64 `json:"id"`
	FirstLSN uint64 `json:"first_lsn"`
	LastLSN  uint64 `json:"last_lsn"` // below the first if the file has no frame
	Bytes    int64  `json:"bytes"`
	Torn     bool   `json:"torn"`
}

type tombstoneLine struct {
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
}

type bloomLine struct {
	Loaded bool    `json:"loaded"`
	Keys   int64   `json:"keys"`
	Bytes  int64   `json:"bytes"`
	Fill   float64 `json:"fill"`
	FPR    float64 `json:"estimated_false_positive_rate"`
}
