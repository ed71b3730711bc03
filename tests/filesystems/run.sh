#!/usr/bin/env bash
# Kills a store's process on file systems that people have beside ext4, xfs and btrfs, and checks what is there afterwards (tests/crash). Needs root, and
# skips, aloud, what is not installed: apt-get install ntfs-3g exfat-fuse exfatprogs bindfs
#
#   tests/filesystems/run.sh [LOOPS]
set -euo pipefail
cd "$(dirname "$0")/../.."
loops=${1:-12}
[ "$(id -u)" = 0 ] || { echo "SKIP: mounting needs root"; exit 0; }
work=$(mktemp -d)
dev=
trap 'umount -q "$work"/*/mnt 2>/dev/null || true; [ -z "$dev" ] || losetup -d "$dev"; rm -rf "$work"' EXIT
go build -o "$work/crash" ./tests/crash

mount_on() { # KIND MNT
	case $1 in
	overlay) mkdir "$2/../"{lower,upper,work} && mount -t overlay -o "lowerdir=$2/../lower,upperdir=$2/../upper,workdir=$2/../work" overlay "$2" ;;
	bindfs) mkdir "$2/../below" && bindfs "$2/../below" "$2" ;;
	ntfs) truncate -s 2G "$2/../disk" && mkfs.ntfs -F -Q "$2/../disk" >/dev/null 2>&1 && ntfs-3g -o umask=077 "$2/../disk" "$2" ;;
	exfat) truncate -s 2G "$2/../disk" && mkfs.exfat "$2/../disk" >/dev/null && dev=$(losetup -f --show "$2/../disk") && mount.exfat-fuse -o umask=077 "$dev" "$2" ;;
	esac
}

failed=0
for kind in overlay bindfs ntfs exfat; do
	mnt=$work/$kind/mnt
	mkdir -p "$mnt"
	if ! mount_on $kind "$mnt" >"$work/log" 2>&1; then
		echo "SKIP $kind: it cannot be mounted here: $(tail -n 1 "$work/log")"
		continue
	fi
	mkdir "$mnt/store"
	echo "== $kind"
	"$work/crash" -loops "$loops" -json -dir "$mnt/store" || failed=1
	umount "$mnt"
done
exit $failed
