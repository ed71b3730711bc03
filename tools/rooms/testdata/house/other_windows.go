package house

func elsewhere() { _ = Roof{} }
