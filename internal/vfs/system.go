package vfs

import (
	"path"
	"strings"
)

var hex16 = strings.Repeat("[0-9a-f]", 16)

// systemNames are what file systems, network drives and desktops put into a folder by themselves, and what dormouse serve does where it can
// write nowhere else. In lower case: not all of these systems tell a from A.
var systemNames = []string{
	// file systems
	"lost+found", "found.[0-9][0-9][0-9]", "lost.dir", ".nfs" + hex16 + "*", ".fuse_hidden" + hex16 + "*", ".smbdelete?*", ".afpdeleted?*", ".zfs", ".snap", ".sujournal",
	".fscrypt", ".glusterfs", ".journal", "aquota.user", "aquota.group", "quota.user", "quota.group",
	// snapshots and bins of network drives
	".snapshot", ".snapshots", "~snapshot", "#snapshot", "@recently-snapshot", "@eadir", "@tmp", "@sharebin", "#recycle", "@recycle", ".recycle",
	".@__thumb", ".trashcan",
	// Linux desktops
	".trash", ".trash-[0-9]*", ".directory",
	// macOS
	".ds_store", ".trashes", ".fseventsd", ".spotlight-v100", ".temporaryitems", ".documentrevisions-v100", ".apdisk", ".localized",
	".volumeicon.icns", ".metadata_never_index", ".com.apple.timemachine.*",
	// Windows
	"system volume information", "$recycle.bin", "recycler", "recycled", "desktop.ini", "thumbs.db", "ehthumbs.db", "bootex.log",
	// volumes of Kubernetes
	"..data", "..data_tmp", "..[0-9][0-9][0-9][0-9]_[0-9][0-9]_[0-9][0-9]_*",
	// dormouse serve: slot files, its socket, its memo of models' hashes
	"dormouse-slots-*", "dormouse-control.sock", "dormouse-models", "dormouse-models.[0-9]*",
}

// SystemName reports whether a file or folder of that name says nothing of whose folder it lies in: systems put it there, not a person.
// Nobody here reads, changes, counts or removes it, and List leaves it out.
func SystemName(name string) bool {
	name = strings.TrimPrefix(strings.ToLower(name), "._") // what macOS keeps of a file on other file systems, beside it
	for _, pattern := range systemNames {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}
