package db

import (
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/prefix"
)

// searched is a loaded model as searches and reads know it.
func searched(m *catalog.Model) prefix.Model {
	return prefix.Model{Fingerprint: m.Fingerprint, Desc: &m.Desc, GroupTensors: m.GroupTensors}
}
