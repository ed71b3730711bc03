package tiny

import "encoding/binary"

// Cache is the memory of conversations: for every layer the rows of K, after RoPE, and of V. A row is one position of one of them:
// KVHeads x HeadDim values of two bytes, little-endian f16. Row r starts at byte r*RowBytes. The memory may be anybody's: that of a
// mapped file, say. Attention reads it where it lies.
type Cache struct {
	K, V     [][]byte // one a layer
	RowBytes int
	Capacity int // rows
}

// NewCache makes room for the rows of capacity positions.
func (m *Model) NewCache(capacity int) *Cache {
	c := &Cache{RowBytes: 2 * m.KVWidth(), Capacity: capacity}
	for range m.Layers {
		c.K = append(c.K, make([]byte, capacity*c.RowBytes))
		c.V = append(c.V, make([]byte, capacity*c.RowBytes))
	}
	return c
}

// TokenBytes is the size of all rows of one position.
func (c *Cache) TokenBytes() int { return (len(c.K) + len(c.V)) * c.RowBytes }

// store rounds values to f16 and writes them as a row of mem.
func (c *Cache) store(mem []byte, row int, values []float32) {
	out := mem[row*c.RowBytes : (row+1)*c.RowBytes]
	for i, v := range values {
		binary.LittleEndian.PutUint16(out[2*i:], toHalf(v))
	}
}

// load reads the values of one head of a row.
func (c *Cache) load(dst []float32, mem []byte, row, head int) {
	in := mem[row*c.RowBytes+2*head*len(dst):][:2*len(dst)]
	for i := range dst {
		dst[i] = fromHalf[binary.LittleEndian.Uint16(in[2*i:])]
	}
}
