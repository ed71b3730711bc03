package tiny

import "encoding/binary"

// Cache is the memory of a conversation: for every layer the rows of K, after RoPE, and of V. A row is one position:
// KVHeads x HeadDim values of two bytes, little-endian f16. Row p starts at byte p*RowBytes.
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

// store rounds values to f16 and writes them as row pos of mem.
func (c *Cache) store(mem []byte, pos int, values []float32) {
	row := mem[pos*c.RowBytes : (pos+1)*c.RowBytes]
	for i, v := range values {
		binary.LittleEndian.PutUint16(row[2*i:], toHalf(v))
	}
}

// load reads the values of one head in rows [0, n) into dst, n x dim.
func (c *Cache) load(dst []float32, mem []byte, n, head, dim int) {
	for pos := range n {
		row := mem[pos*c.RowBytes+2*head*dim:][:2*dim]
		out := dst[pos*dim : (pos+1)*dim]
		for i := range out {
			out[i] = fromHalf[binary.LittleEndian.Uint16(row[2*i:])]
		}
	}
}
