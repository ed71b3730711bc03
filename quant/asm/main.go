// Command asm writes the assembly of quant's kernels. It is a module of its own, so that nothing that imports quant needs
// the libraries it uses. "go generate ./quant" runs it; what it writes is the same on every machine.
package main

import (
	"bytes"
	"flag"
	"log"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "..", "folder of package quant")
	flag.Parse()
	for name, b := range generate() {
		if err := os.WriteFile(filepath.Join(*dir, name), b, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the files by name.
func generate() map[string][]byte {
	files := make(map[string][]byte)
	c := newX86("AVX2")
	c.dequantizeAll()
	turned := c.turnedConstants()
	for _, dt := range types {
		for _, crc := range []bool{false, true} {
			for _, stream := range []bool{false, true} {
				c.dequantizeTurned(dt, turned, crc, stream)
			}
		}
	}
	for _, dt := range types {
		c.quantizeTurned(dt, turned)
	}
	for _, dt := range types {
		c.quantize(dt, false)
		c.quantize(dt, true)
	}
	c.copyStream()
	c.copyCRC(false)
	c.copyCRC(true)
	c.transpose16()
	c.transpose32()
	for _, size := range []int{2, 4} {
		c.splitBytes(size)
		c.mergeBytes(size)
	}
	c.fence()
	c.write("avx2_amd64", files)

	// What else there is gains nothing from wider vectors: AVX-512 uses the functions above.
	c = newX86("AVX512")
	c.dequantizeAll()
	c.write("avx512_amd64", files)

	n := newNEON()
	for _, dt := range types {
		n.dequantize(dt, false)
		n.dequantize(dt, true)
	}
	for _, dt := range types {
		n.dequantizeTurned(dt, false)
		n.dequantizeTurned(dt, true)
	}
	for _, dt := range types {
		n.quantize(dt)
	}
	n.transpose16()
	n.transpose32()
	for _, size := range []int{2, 4} {
		n.splitBytes(size)
		n.mergeBytes(size)
	}
	n.write(files)
	return files
}

// write compiles what was built into assembly and its Go declarations.
func (c *x86) write(name string, files map[string][]byte) {
	file, err := c.Result()
	if err != nil {
		log.Fatal(err)
	}
	if err := pass.Compile.Execute(file); err != nil {
		log.Fatal(err)
	}
	cfg := printer.Config{Name: "quant/asm", Pkg: "quant"}
	for suffix, p := range map[string]printer.Printer{".s": printer.NewGoAsm(cfg), ".go": printer.NewStubs(cfg)} {
		b, err := p.Print(file)
		if err != nil {
			log.Fatal(err)
		}
		files["kernels_"+name+suffix] = append(bytes.TrimRight(b, "\n"), '\n')
	}
}

// x86 builds the functions of one file.
type x86 struct {
	*build.Context
	isa  string
	turn turnRegs
}

func newX86(isa string) *x86 { return &x86{Context: build.NewContext(), isa: isa} }

func (c *x86) dequantizeAll() {
	for _, dt := range types {
		for _, crc := range []bool{false, true} {
			for _, stream := range []bool{false, true} {
				c.dequantize(dt, crc, stream)
			}
		}
	}
}

func (c *x86) fence() {
	c.Function("storeFence")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func()")
	c.Doc("storeFence orders stores that bypassed the caches before those that follow.")
	c.SFENCE()
	c.RET()
}
