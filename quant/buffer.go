package quant

import "sync"

// buffer is pooled working memory.
type buffer struct{ b []byte }

// maxPooledBytes keeps a rare large plane from staying in memory.
const maxPooledBytes = 8 << 20

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// getBuffer returns a buffer of n bytes with any content, and no capacity beyond them.
func getBuffer(n int) *buffer {
	buf := buffers.Get().(*buffer)
	if cap(buf.b) < n {
		buf.b = make([]byte, n)
	}
	buf.b = buf.b[:n]
	return buf
}

func (buf *buffer) release() {
	if cap(buf.b) <= maxPooledBytes {
		buffers.Put(buf)
	}
}
