#!/bin/sh
# Images by their own tools, in the directory $1, for pack.py beside this file. Needs the Debian 12 packages of the tools,
# and root for a loop device (LVM).
set -u
cd "$1" || exit
PATH=$PATH:/usr/sbin:/sbin
new() { rm -f "$1"; truncate -s "$2" "$1"; }
t() { "$@" >../log.$img 2>&1 || echo "FAILED $img: $*"; }
img=btrfs; new $img 110M; t mkfs.btrfs -q -L data $img
img=ntfs; new $img 8M; t mkntfs -F -Q -q $img
img=fat12; new $img 2M; t mkfs.vfat -F 12 $img
img=fat16; new $img 20M; t mkfs.vfat -F 16 $img
img=fat32; new $img 64M; t mkfs.vfat -F 32 $img
img=fat-mbr; new $img 64M; t mkfs.vfat -F 32 --mbr=y $img
mkdir -p ../src; echo hello >../src/file
img=iso9660; t xorriso -as mkisofs -quiet -o $img ../src
img=squashfs; rm -f $img; t mksquashfs ../src $img -quiet -no-progress
img=erofs; rm -f $img; t mkfs.erofs $img ../src
img=xfs; new $img 300M; t mkfs.xfs -q $img
img=ext2; new $img 8M; t mke2fs -q -t ext2 -F $img
img=ext3; new $img 8M; t mke2fs -q -t ext3 -F $img
img=ext4; new $img 8M; t mke2fs -q -t ext4 -F $img
img=jbd; new $img 8M; t mke2fs -q -O journal_dev -b 4096 -F $img
img=f2fs; new $img 64M; t mkfs.f2fs -q $img
img=jfs; new $img 20M; t mkfs.jfs -q $img
img=reiserfs; new $img 40M; t mkreiserfs -q -f -f $img
img=reiser4; new $img 40M; t mkfs.reiser4 -y -f $img
img=nilfs2; new $img 160M; t mkfs.nilfs2 -q $img
img=ocfs2; new $img 64M; t mkfs.ocfs2 --no-backup-super -M local -b 1K -C 4K -J size=4M -F -x -q $img
img=gfs2; new $img 100M; l=$(losetup --show -f $img) && { t mkfs.gfs2 -O -q -p lock_nolock -J 8 -j 1 "$l"; losetup -d "$l"; }
img=hfs; new $img 4M; t hformat -l x $img
img=exfat; new $img 8M; t mkfs.exfat $img
img=udf; new $img 8M; t mkfs.udf $img
img=udf-cd; new $img 8M; t mkfs.udf -b 2048 -m cdrw $img
img=romfs; rm -f $img; t genromfs -f $img -d ../src
img=cramfs; rm -f $img; t mkfs.cramfs ../src $img
img=cramfs-be; rm -f $img; t mkfs.cramfs -N big ../src $img
img=minix1; new $img 4M; t mkfs.minix -1 $img
img=minix1-14; new $img 4M; t mkfs.minix -1 -n 14 $img
img=minix2; new $img 4M; t mkfs.minix -2 $img
img=minix2-14; new $img 4M; t mkfs.minix -2 -n 14 $img
img=minix3; new $img 4M; t mkfs.minix -3 $img
img=bfs; new $img 4M; t mkfs.bfs $img
img=swap; new $img 4M; t mkswap $img
img=swap64k; new $img 4M; t mkswap -p 65536 $img
img=apfs; new $img 600M; t mkapfs $img
img=ubifs; rm -f $img; t mkfs.ubifs -r ../src -m 512 -e 15360 -c 100 -o $img
printf '[v]\nmode=ubi\nimage=ubifs\nvol_id=0\nvol_size=1MiB\nvol_type=dynamic\nvol_name=v\n' >../ubi.ini
img=ubi; rm -f $img; t ubinize -o $img -p 16KiB -m 512 ../ubi.ini
echo secret >../key
img=luks1; new $img 20M; t cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 $img --key-file ../key
img=luks2; new $img 20M; t cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $img --key-file ../key
img=luks2-second; cp luks2 $img; t dd if=/dev/zero of=$img bs=4096 count=1 conv=notrunc
img=verity; new $img 4M; dd if=/dev/urandom of=../data bs=4096 count=16 2>/dev/null; t veritysetup format ../data $img
img=lvm2; new $img 8M; l=$(losetup --show -f $img) && { t pvcreate -q --config 'devices{use_devicesfile=0 filter=["a|.*|"]}' $l; losetup -d $l; }
img=bcache; new $img 8M; t make-bcache -B $img
img=drbd; new $img 64M; t drbdmeta --force 0 v09 $img internal create-md 1
img=drbd8; new $img 64M; t drbdmeta --force 0 v08 $img internal create-md
img=gpt; new $img 8M; t sgdisk -n 1:0:0 $img
img=dos; new $img 8M; echo ',,83' | t sfdisk -q $img
# RAIDs, encryption and swap are not looked for on what is no longer than a floppy disk.
truncate -s 4M romfs ubi ubifs cramfs cramfs-be erofs squashfs
