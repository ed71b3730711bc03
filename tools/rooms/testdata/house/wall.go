package house

const Height = 3

type Wall struct{ paint func(string) }

func (w Wall) Paint() { paper(); w.paint("white") }

func (w *Wall) lean(f *Floor) { f.depth++ }
