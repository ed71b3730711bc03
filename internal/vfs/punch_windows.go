package vfs

import (
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// HolesUnderMaps says whether a hole can be punched into a file that is mapped. Windows refuses that, with ERROR_USER_MAPPED_FILE.
const HolesUnderMaps = false

// punch makes the file sparse and zeroes the range. Sparse files are what NTFS and ReFS take holes out of, exFAT and FAT have none. Whatever
// is refused becomes zeros: a file that somebody has mapped stays as large as it is.
func punch(f *os.File, off, n int64) (bool, error) {
	return punchBlocks(f, off, n, blockOf(filepath.Dir(f.Name())), func(from, to int64) error {
		if control(f, windows.FSCTL_SET_SPARSE, nil, 0) != nil { // it may be sparse already: then nothing changes
			return errNoHoles
		}
		zero := struct{ fileOffset, beyondFinalZero int64 }{from, to} // FILE_ZERO_DATA_INFORMATION
		if control(f, windows.FSCTL_SET_ZERO_DATA, (*byte)(unsafe.Pointer(&zero)), uint32(unsafe.Sizeof(zero))) != nil {
			return errNoHoles
		}
		return nil
	})
}

// control asks the file system for something. The handle stays open meanwhile.
func control(f *os.File, code uint32, in *byte, bytes uint32) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var returned uint32
	closed := conn.Control(func(h uintptr) {
		err = windows.DeviceIoControl(windows.Handle(h), code, in, bytes, nil, 0, &returned, nil)
	})
	if closed != nil {
		return os.ErrClosed
	}
	return err
}

// sparseUnit is what NTFS takes out of a sparse file at a time, and gives to it: 16 clusters of 4 KiB.
const sparseUnit = 64 << 10

// blockOf is what the file system of a folder takes and gives back at a time.
func blockOf(dir string) int64 {
	const usual = 4 << 10
	root := make([]uint16, windows.MAX_LONG_PATH)
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil || windows.GetVolumePathName(path, &root[0], uint32(len(root))) != nil {
		return usual
	}
	var perCluster, perSector, free, total uint32
	ok, _, _ := getDiskFreeSpace.Call(uintptr(unsafe.Pointer(&root[0])), uintptr(unsafe.Pointer(&perCluster)), uintptr(unsafe.Pointer(&perSector)),
		uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	cluster := int64(perCluster) * int64(perSector)
	if ok == 0 || cluster <= 0 {
		cluster = usual
	}
	var flags uint32
	name := make([]uint16, windows.MAX_PATH+1)
	err = windows.GetVolumeInformation(&root[0], nil, 0, nil, nil, &flags, &name[0], uint32(len(name)))
	if err == nil && flags&windows.FILE_SUPPORTS_SPARSE_FILES != 0 && windows.UTF16ToString(name) == "NTFS" {
		return max(cluster, sparseUnit)
	}
	return cluster
}

var getDiskFreeSpace = windows.NewLazySystemDLL("kernel32.dll").NewProc("GetDiskFreeSpaceW")

// allocatedAt is what a file occupies. Of a file that is not sparse it is the size; of a sparse one the system knows it.
func allocatedAt(name string, info os.FileInfo) int64 {
	if !isSparse(info) {
		return info.Size()
	}
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return info.Size()
	}
	const anyShare = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	h, err := windows.CreateFile(path, windows.FILE_READ_ATTRIBUTES, anyShare, nil, windows.OPEN_EXISTING, windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return info.Size()
	}
	defer windows.CloseHandle(h)
	return compressedSize(h, info.Size())
}

// allocatedIn is allocatedAt of an open file.
func allocatedIn(f *os.File, info os.FileInfo) int64 {
	size := info.Size()
	if !isSparse(info) {
		return size
	}
	if conn, err := f.SyscallConn(); err == nil {
		conn.Control(func(h uintptr) { size = compressedSize(windows.Handle(h), size) })
	}
	return size
}

func isSparse(info os.FileInfo) bool {
	a, ok := info.Sys().(*syscall.Win32FileAttributeData)
	return ok && a.FileAttributes&windows.FILE_ATTRIBUTE_SPARSE_FILE != 0
}

// compressedSize is what GetCompressedFileSize returns, of an open file: the bytes that it occupies, holes left out.
func compressedSize(h windows.Handle, unknown int64) int64 {
	var info struct { // FILE_COMPRESSION_INFO
		compressedFileSize                             int64
		compressionFormat                              uint16
		compressionUnitShift, chunkShift, clusterShift uint8
		reserved                                       [3]uint8
	}
	err := windows.GetFileInformationByHandleEx(h, windows.FileCompressionInfo, (*byte)(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		return unknown
	}
	return info.compressedFileSize
}
