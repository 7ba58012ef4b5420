#!/bin/bash
# run.sh --initramfs FILE --share DIR [--deadline-s N] [--instruction-clock] [-- QEMU ARGUMENTS]:
# boots the guest, waits. With --instruction-clock each instruction takes the guest a nanosecond, so
# that how busy this machine is does not show in the times that the guest measures.
#
# The share gets console.log, what the test writes there, and its marks (mark.NAME).
# Exit status: that of the guest's test; 77 no QEMU; 98 the guest did not end its test in time;
# 99 QEMU itself failed.
source "$(dirname "$0")/common.sh"
need qemu-system-x86_64:qemu-system-x86

initramfs='' share='' deadline_s=120
clock=(-accel 'tcg,thread=multi')
while [ $# -gt 0 ]; do
  case $1 in
    --initramfs) initramfs=$2; shift 2 ;;
    --share) share=$2; shift 2 ;;
    --deadline-s) deadline_s=$2; shift 2 ;;
    --instruction-clock) clock=(-accel 'tcg,thread=single' -icount shift=0,sleep=off); shift ;;
    --) shift; break ;;
    *) die "unknown option $1" ;;
  esac
done
[ -e "$initramfs" ] && [ -d "$share" ] || die "--initramfs FILE and --share DIR are needed"
kernel=$("$GUEST_DIR/kernel.sh")

# Plain emulation: works in a container and in a virtual machine, needs no /dev/kvm. The kernel does not look whether its
# timer ticks: on a busy host it does not in time, and the kernel would panic.
status=0
timeout "$deadline_s" qemu-system-x86_64 \
  "${clock[@]}" -cpu max -smp "${FTB_GUEST_CPUS:-1}" -m "${FTB_GUEST_MEMORY_MB:-512}" \
  -nodefaults -no-reboot -display none -monitor none -serial "file:$share/console.log" \
  -virtfs "local,path=$share,mount_tag=share,security_model=none" \
  -kernel "$kernel/vmlinux" -initrd "$initramfs" -append "console=ttyS0 quiet panic=-1 no_timer_check" \
  "$@" </dev/null || status=$?

rc=$(tr -d '\r' <"$share/console.log" 2>/dev/null | awk '/^GUEST-RC/ { print $2 }')
if [ -n "$rc" ]; then exit "$rc"; fi
echo "the guest did not end its test (QEMU status $status); the last lines of $share/console.log:" >&2
tail -n 20 "$share/console.log" >&2 || true
if [ "$status" = 124 ] || [ "$status" = 0 ]; then exit 98; fi
exit 99
