#!/usr/bin/env python3
# Images of what Debian has no tool for, or a tool that wants the hardware or a kernel module: by the published layouts, in
# the directory of the first argument, after tools.sh (the superblock of "exfs" is that of "xfs" there). blkid, and for md
# mdadm --examine, take each for what it is.
import struct,sys,os
out=sys.argv[1]
M=1<<20
def img(name,size,*pieces):
    p=os.path.join(out,name)
    with open(p,'wb') as f:
        f.truncate(size)
        for off,b in pieces:
            if off<0: off+=size
            f.seek(off); f.write(b)
le16=lambda v:struct.pack('<H',v); le32=lambda v:struct.pack('<I',v); le64=lambda v:struct.pack('<Q',v)
be16=lambda v:struct.pack('>H',v); be32=lambda v:struct.pack('>I',v); be64=lambda v:struct.pack('>Q',v)
def rec(size,*fields):
    b=bytearray(size)
    for off,v in fields: b[off:off+len(v)]=v
    return bytes(b)
U=bytes(range(1,17))
S=8*M
def crc32c(b,c=0xffffffff):
    for x in b:
        c^=x
        for _ in range(8): c=(c>>1)^(0x82f63b78 if c&1 else 0)
    return c
# md: Documentation/admin-guide/md.rst, include/uapi/linux/raid/md_p.h
def md1(sb):
    b=bytearray(rec(256,(0,le32(0xa92b4efc)),(4,le32(1)),(16,U),(32,b'host:0'),(72,le32(1)),(80,le64(8192)),(92,le32(1)),(128,le64(2048)),(136,le64(8192)),(144,le64(sb//512)),(220,le32(0))))
    # checksum at 216 of the words
    n=256+2*0
    s=sum(struct.unpack('<64I',bytes(b)))
    s=(s&0xffffffff)+(s>>32)
    b[216:220]=le32(s&0xffffffff)
    return bytes(b)
img('md-1.0',S,(S-8192,md1(S-8192)))
img('md-1.1',S,(0,md1(0)))
img('md-1.2',S,(4096,md1(4096)))
img('md-0.90',S,(S-65536,rec(4096,(0,le32(0xa92b4efc)),(4,le32(0)),(8,le32(90)),(20,U[:4]),(28,le32(1)))))
img('md-0.90-be',S,(S-65536,rec(4096,(0,be32(0xa92b4efc)),(4,be32(0)),(8,be32(90)),(20,U[:4]),(28,be32(1)))))
ddf=rec(512,(0,be32(0xde11de11)),(8,b'VENDOR  '+U),(32,b'01.02.00'),(96,be64(S//512-1)))
img('ddf',S,(-512,ddf))
img('isw',S,(-1024,b'Intel Raid ISM Cfg Sig. 1.1.00\0\0'))
img('lsi',S,(-512,b'$XIDE$\0\0\0\0\0\0\0\0\0\0'))
v=bytearray(rec(51,(0,le16(0xaa55)),(2,b'\1'),(18,b'\5')))
v[50]=sum(v[:50])&255
img('via',S,(-512,bytes(v)))
s=bytearray(rec(512,(0x60,le32(0x2f000000)),(0x10a,le16(2)),(0x108,le16(1)),(0x11a,b'\1')))
c=sum(struct.unpack('<159H',bytes(s[:318])))
s[318:320]=le16((-c)&0xffff)
img('silicon',S,(-512,bytes(s)))
n=bytearray(rec(120,(0,b'NVIDIA  '),(8,le32(30)),(16,le16(0x64))))
c=sum(struct.unpack('<30I',bytes(n)))&0xffffffff
n[12:16]=le32((-c)&0xffffffff)
img('nvidia',S,(-1024,bytes(n)))
img('promise',S,(-63*512,b'Promise Technology, Inc.'))
img('hpt45x',S,(-11*512,le32(0x5a7816f3)))
img('hpt37x',S,(9*512+32,le32(0x5a7816f0)))
img('jmicron',S,(-512,rec(128,(0,b'JM'),(2,b'\1\2'))))
img('drbdproxy',S,(0,b'DRBDdlh*'+le64(1)+U))
img('lvm1',S,(0,b'HM'+le16(1)),(0x2c,b'abcdefghijklmnopqrstuvwxyz012345'))
img('snapcow',S,(0,b'SnAp'))
img('integrity',S,(0,b'integrt\0\1'))
img('vmfs-member',S,(M,b'\x0d\xd0\x01\xc0'))
img('vmfs',S,(2*M,b'\x5e\xf1\xab\x2f'))
img('vdo',S,(0,b'dmvdo001'))
img('bluestore',S,(0,b'bluestore block device\n01234567-89ab-cdef-0123-456789abcdef\n'))
for i,(n,m) in enumerate({'s1':b'S1SUSPEND\0','s2':b'S2SUSPEND\0','ul':b'ULSUSPEND\0','linhib':b'LINHIB0001'}.items()): img('swsuspend-'+n,S,(0xff6,m))
img('swsuspend-toi',S,(0,b'\xed\xc3\x02\xe9\x98\x56\xe5\x0c'))
img('swap0',S,(0xff6,b'SWAP-SPACE'))
img('oracleasm',S,(32,b'ORCLDISK'),)
img('vxfs',S,(1024,b'\xf5\xfc\x01\xa5'))
img('vxfs-be',S,(8192,b'\xa5\x01\xfc\xf5'))
img('squashfs3',S,(0,rec(120,(0,b'hsqs'),(28,le16(3)),(30,le16(1)))))
img('squashfs3-be',S,(0,rec(120,(0,b'sqsh'),(28,be16(3)),(30,be16(1)))))
img('nss',S,(4096,b'SPB5'))
img('ufs1',S,(8192+0x55c,le32(0x00011954)))
img('ufs2',S,(65536+0x55c,le32(0x19540119)))
img('ufs2-256k',S,(262144+0x55c,be32(0x19540119)))
img('hpfs',S,(0x2000,b'\x49\xe8\x95\xf9'),(17*512,b'\x49\x18\x91\xf9'))
img('sysv',S,(1024*9+512+504,le32(0xfd187e20)))
img('sysv-a',S,(1024*0+512+504,le32(0xfd187e20)))
img('xenix',S,(0x800-8,b'\0'*8+b'\x2b\x55\x44'))
img('refs',S,(0,b'\0\0\0ReFS\0'))
img('gfs',64*M,(65536,rec(512,(0,be32(0x01161970)),(4,be32(1)),(24,be32(1309)),(28,be32(1401)))))
img('ocfs',16*M,(0,rec(512,(0,le32(1)),(4,le32(2)),(8,b'OracleCFS'))),(8192,b'OracleCFS'))
img('xfs-log',16*M,(0,rec(512,(0,be32(0xfeedbabe)),(4,be32(1)),(8,be32(2)),(12,be32(512)),(16,be64(1<<32)),(24,be64(1<<32)),(300,be32(1)),(304,U))))
img('hfsplus',S,(1024,rec(512,(0,b'H+'),(2,be16(4)),(40,be32(4096)),(44,be32(2048)))))
img('hfsx',S,(1024,rec(512,(0,b'HX'),(2,be16(5)),(40,be32(4096)),(44,be32(2048)))))
img('hfsplus-wrapped',S,(1024,rec(512,(0,b'BD'),(20,be32(4096)),(28,be16(8)),(124,b'H+'),(126,be16(1)),(128,be16(100)))),(8*512+4096+1024,rec(512,(0,b'H+'),(2,be16(4)),(40,be32(4096)),(44,be32(90)))))
def ub(n,base): return [(base+128*1024+i*1024,le64(0x00bab10c)+le64(5000)+le64(10+i)+le64(7)+le64(1700000000)) for i in range(n)]
Z=64*M
img('zfs',Z,*(ub(4,0)+ub(4,256*1024)+ub(4,Z-512*1024)+ub(4,Z-256*1024)))
img('zfs-1',Z,*(ub(4,0)))
img('zfs-end',Z,*(ub(4,Z-256*1024)))
img('zonefs',S,(0,rec(4096,(0,b'SFOZ'))))
img('highsierra',S,(0x8009,b'CDROM'),(0x8000,b'\0'))
img('ext4dev',S,(1024,rec(1024,(56,b'\x53\xef'),(24,le32(2)),(0x5c,le32(4)),(0x60,le32(0x40)),(0x160,le32(4)),(0x4c,le32(1)))))
for n,boot in (('vista',b'\xeb\x52\x90-FVE-FS-'),('win7',b'\xeb\x58\x90-FVE-FS-'),('togo',b'\xeb\x58\x90MSWIN4.1')):
    f=[(0,boot),(11,le16(512)),(13,b'\x08'),(510,b'\x55\xaa')]
    if n=='win7': f+=[(160,b'\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01'),(176,le64(65536))]
    if n=='togo': f+=[(424,b'\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01'),(440,le64(65536))]
    if n=='vista': f+=[(56,le64(16))]
    img('bitlocker-'+n,S,(0,rec(512,*f)),(65536,rec(64,(0,b'-FVE-FS-'),(8,le16(64)),(10,le16(2)))))
st=bytearray(rec(512,(4,b'!Stra0tis\x86\xff\x02^\x41rh'),(20,le64(S//512)),(28,b'\1'),(32,b'0123456789abcdef0123456789abcdef'),(64,b'abcdef0123456789abcdef0123456789')))
st[0:4]=le32(crc32c(st[4:])^0xffffffff)
img('stratis',S,(512,bytes(st)))
img('stratis-2',S,(4608,bytes(st)))
m=bytearray(rec(512,(0,b'mpoolDev'),(8,b'name'),(40,U),(56,le16(1))))
for o in (62,):
    m[o:o+4]=le32(crc32c(m[:o])^0xffffffff)
img('mpool',S,(0,bytes(m)))
img('drbdmanage',S,(0,b'$DRBDmgr=q'+b'\n'+b'0123456789abcdef0123456789abcdef\n'),(0x1000,b'\x1a\xdb\x98\xa2'))
x=bytearray(open(os.path.join(out,'xfs'),'rb').read(512)); x[0:4]=b'EXFS'
img('exfs',300*M,(0,bytes(x)))
for o,e in (('<','le'),('>','be')):
    p=lambda f,v: struct.pack(o+f,v)
    sb=rec(512,(0,b'label'),(32,p('I',0x42465331)),(36,p('I',0x42494745)),(40,p('I',2048)),(44,p('I',11)),(48,p('Q',4096)),(64,p('I',2048)),(68,p('I',0xdd121031)),(72,p('I',1)),(76,p('I',13)),(80,p('I',1)),(84,p('I',0x434c454e)),(112,p('I',0x15b6830e)),(116,p('I',0)+p('H',100)+p('H',1)))
    inode=rec(2048,(0,p('I',0x3bbe0ad9)))
    img('befs-'+e,S,(512,sb),(100*2048,inode),(200*2048,inode))
img('adaptec',S,(-512,rec(512,(0,be32(0x37fc4d1e)),(256,b'DPTM'))))
