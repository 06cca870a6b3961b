#!/bin/sh
# Headers of cryptsetup's making, one a recipe: `sh make.sh` in this directory; needs cryptsetup (2.6.1 made what is here),
# xz, coreutils and no privileges.
#
# NAME.xz    both copies of the header, without the key slots' areas, which no compression makes small; the recipes
#            whose name begins with "whole-" have the areas too, and open with the passphrase "correct horse"
# NAME.dump  what `cryptsetup luksDump` says of it
set -eu
PATH=/usr/sbin:/sbin:/usr/bin:/bin
here=$(pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
device=$dir/device
printf 'correct horse' >"$dir/key"
printf 'battery staple' >"$dir/other"
pbkdf2='--pbkdf=pbkdf2 --pbkdf-force-iterations=1000'
argon2='--pbkdf-force-iterations=4 --pbkdf-memory=64'

new() {
    rm -f "$device" "$dir/header"
    truncate -s "${2:-17M}" "$device"
    name=$1
}
# shellcheck disable=SC2086 # options are words
run() { cryptsetup --batch-mode "$@" >/dev/null; }
format() { run luksFormat "$device" --type=luks2 --key-file="$dir/key" "$@"; }
# Keeps the first bytes of the device (or of a header apart from it): both copies, or more for whole ones.
keep() {
    from=${2:-$device}
    size=$(cryptsetup luksDump "$from" | sed -n 's/^Metadata area:[^0-9]*\([0-9]*\).*/\1/p')
    head -c "${1:-$((size * 2))}" "$from" | xz -9e >"$here/$name.xz"
    cryptsetup luksDump "$from" >"$here/$name.dump"
}
recipe() {
    new "$1"
    shift
    # shellcheck disable=SC2086
    format "$@"
    keep
}
slot() {
    # shellcheck disable=SC2086
    run luksAddKey "$device" "$dir/other" --key-file="$dir/key" $pbkdf2 "$@"
}

rm -f ./*.xz ./*.dump

# Key derivation, key length, sector size.
for bits in 256 512; do
    for sector in 512 4096; do
        shape="--key-size=$bits --sector-size=$sector"
        # shellcheck disable=SC2086
        {
            recipe "pbkdf2-$bits-$sector" $pbkdf2 $shape
            recipe "argon2i-$bits-$sector" --pbkdf=argon2i $argon2 --pbkdf-parallel=1 $shape
            recipe "argon2id-$bits-$sector" --pbkdf=argon2id $argon2 --pbkdf-parallel=1 $shape
        }
    done
done
# shellcheck disable=SC2086
{
    for sector in 1024 2048; do recipe "sector-$sector" $pbkdf2 --sector-size=$sector; done
    for lanes in 2 3 4; do
        recipe "lanes-$lanes" --pbkdf=argon2id $argon2 --pbkdf-parallel=$lanes
    done
    for memory in 32 100 1024 65536; do
        recipe "memory-$memory" --pbkdf=argon2id --pbkdf-force-iterations=4 --pbkdf-memory=$memory --pbkdf-parallel=1
    done
    for passes in 5 9; do
        recipe "passes-$passes" --pbkdf=argon2id --pbkdf-force-iterations=$passes --pbkdf-memory=64 --pbkdf-parallel=1
    done
    for hash in sha384 sha512; do
        recipe "hash-pbkdf2-$hash" $pbkdf2 --hash=$hash
        recipe "hash-argon2id-$hash" --pbkdf=argon2id $argon2 --pbkdf-parallel=1 --hash=$hash
    done
    # Lengths of the copies, of the slots' area, and where the data begins.
    for kib in 16 32 64 128 256 512 1024 2048 4096; do
        recipe "copy-${kib}k" $pbkdf2 --luks2-metadata-size=${kib}k
    done
    for kib in 256 1024 4096; do
        recipe "slots-${kib}k" $pbkdf2 --key-size=256 --luks2-keyslots-size=${kib}k
    done
    for sectors in 4096 16384 32768; do recipe "offset-$sectors" $pbkdf2 --offset=$sectors; done
    # Names.
    recipe label $pbkdf2 --label='a label of two words'
    recipe subsystem $pbkdf2 --subsystem=billet --label=STATE
    recipe uuid $pbkdf2 --uuid=0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7
    recipe last-slot $pbkdf2 --key-slot=31

    # More slots.
    new slots-2; format $pbkdf2; slot; keep
    new slots-gap; format $pbkdf2; slot --key-slot=9; slot --key-slot=4; keep
    new slots-mixed; format $pbkdf2
    run luksAddKey "$device" "$dir/other" --key-file="$dir/key" --pbkdf=argon2id $argon2 --pbkdf-parallel=2
    run luksAddKey "$device" "$dir/other" --key-file="$dir/key" --pbkdf=argon2i $argon2 --pbkdf-parallel=1
    keep
    new slots-32; format $pbkdf2
    n=1; while [ $n -lt 32 ]; do slot; n=$((n + 1)); done
    keep
    new slots-removed; format $pbkdf2; slot; slot
    run luksKillSlot "$device" 1 --key-file="$dir/key"; keep
    new slots-reused; format $pbkdf2; slot; slot
    run luksKillSlot "$device" 1 --key-file="$dir/key"; slot; keep
    new slot-changed; format $pbkdf2
    run luksChangeKey "$device" "$dir/other" --key-file="$dir/key" $pbkdf2; keep
    new slot-converted; format $pbkdf2
    run luksConvertKey "$device" --key-file="$dir/key" --pbkdf=argon2id $argon2 --pbkdf-parallel=1; keep
    new slot-unbound; format $pbkdf2; slot --unbound --key-size=256; keep
    new slot-unbound-odd; format $pbkdf2; slot --unbound --key-size=152; keep
    for priority in prefer normal ignore; do
        new "priority-$priority"; format $pbkdf2; slot
        run config "$device" --priority=$priority --key-slot=1; keep
    done
    new renamed; format $pbkdf2; run config "$device" --label=later --subsystem=after; keep

    # Tokens.
    new token-keyring; format $pbkdf2
    run token add "$device" --key-description=billet --token-id=3 --key-slot=0; keep
    new token-imported; format $pbkdf2
    printf '{"type":"billet-test","keyslots":["0"],"more":{"list":[1,null,true]}}' >"$dir/token"
    run token import "$device" --json-file="$dir/token" --token-id=7; keep
    new token-removed; format $pbkdf2
    run token import "$device" --json-file="$dir/token" --token-id=7
    run token remove "$device" --token-id=7; keep

    # Apart from the data.
    new detached; truncate -s 4M "$dir/header"
    format $pbkdf2 --header="$dir/header"; keep '' "$dir/header"
    new detached-offset; truncate -s 4M "$dir/header"
    format $pbkdf2 --header="$dir/header" --offset=8192; keep '' "$dir/header"

    # Ciphers that are not known here.
    known='--keyslot-cipher=aes-xts-plain64 --keyslot-key-size=512'
    for cipher in aes-xts-plain aes-xts-plain64be aes-cbc-plain64 aes-cbc-essiv:sha256 aes-ecb; do
        recipe "cipher-$(echo $cipher | tr : -)" $pbkdf2 --cipher=$cipher --key-size=256 $known
    done

    # With the slots' areas.
    new whole-pbkdf2; format $pbkdf2 --key-size=256 --luks2-keyslots-size=128k --offset=320; keep 163840
    new whole-argon2id; format --pbkdf=argon2id $argon2 --pbkdf-parallel=4 --key-size=256 \
        --luks2-keyslots-size=128k --offset=320; keep 163840

    # One copy is gone, or older.
    new damaged-first; format $pbkdf2; cryptsetup luksDump "$device" >"$here/$name.dump"
    dd if=/dev/zero of="$device" bs=512 count=1 conv=notrunc status=none
    head -c 32768 "$device" | xz -9e >"$here/$name.xz"
    new damaged-second; format $pbkdf2; cryptsetup luksDump "$device" >"$here/$name.dump"
    dd if=/dev/zero of="$device" bs=512 seek=32 count=1 conv=notrunc status=none
    head -c 32768 "$device" | xz -9e >"$here/$name.xz"
    new older-second; format $pbkdf2
    dd if="$device" of="$dir/copy" bs=16384 skip=1 count=1 status=none
    slot; cryptsetup luksDump "$device" >"$here/$name.dump"
    dd if="$dir/copy" of="$device" bs=16384 seek=1 conv=notrunc status=none
    head -c 32768 "$device" | xz -9e >"$here/$name.xz"
    new older-first; format $pbkdf2
    dd if="$device" of="$dir/copy" bs=16384 count=1 status=none
    slot; cryptsetup luksDump "$device" >"$here/$name.dump"
    dd if="$dir/copy" of="$device" bs=16384 conv=notrunc status=none
    head -c 32768 "$device" | xz -9e >"$here/$name.xz"
}
