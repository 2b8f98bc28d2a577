"""The invented invoices behind the sample PDFs, and the XML that each must become."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

CENT = Decimal("0.01")


@dataclass(frozen=True)
class Item:
    description: str
    quantity: Decimal
    price: Decimal
    rate: int
    code: str = ""

    @property
    def amount(self) -> Decimal:
        return cents(self.quantity * self.price)


@dataclass(frozen=True)
class Invoice:
    issuer: str
    nif: str
    customer: str
    number: str
    issued: date
    items: tuple[Item, ...]
    customer_nif: str = ""
    due: date | None = None
    address: tuple[str, ...] = field(default=("Rua das Flores, 12", "4000-001 Porto"))

    @property
    def by_rate(self) -> list[tuple[int, Decimal, Decimal]]:
        bases: dict[int, Decimal] = defaultdict(Decimal)
        for item in self.items:
            bases[item.rate] += item.amount
        return [(rate, base, cents(base * rate / 100)) for rate, base in sorted(bases.items())]

    @property
    def net(self) -> Decimal:
        return sum((base for _, base, _ in self.by_rate), Decimal(0))

    @property
    def vat(self) -> Decimal:
        return sum((vat for _, _, vat in self.by_rate), Decimal(0))


def cents(amount: Decimal) -> Decimal:
    return amount.quantize(CENT, ROUND_HALF_UP)


def expected(invoice: Invoice, codes: bool, totals: bool) -> dict[str, Any]:
    """The document that the mapping must find, made from the data and not from the PDF."""
    customer = {"name": invoice.customer}
    if invoice.customer_nif:
        customer["nif"] = invoice.customer_nif
    tree: dict[str, Any] = {
        "issuer": {"name": invoice.issuer, "nif": invoice.nif},
        "customer": customer,
        "number": invoice.number,
        "date": invoice.issued.isoformat(),
    }
    if invoice.due:
        tree["due_date"] = invoice.due.isoformat()
    tree["lines"] = {"line": [line(item, codes) for item in invoice.items]}
    rates = [{"rate": str(r), "base": str(base), "amount": str(vat)} for r, base, vat in invoice.by_rate]
    tree["vat_totals"] = {"vat": rates}
    if totals:
        tree |= {"net": str(invoice.net), "vat": str(invoice.vat)}
    return {"invoice": {**tree, "total": str(invoice.net + invoice.vat)}}


def line(item: Item, codes: bool) -> dict[str, str]:
    return ({"code": item.code} if codes else {}) | {
        "description": item.description,
        "quantity": f"{item.quantity.normalize():f}",
        "unit_price": str(item.price),
        "vat_rate": str(item.rate),
        "amount": str(item.amount),
    }


def item(description: str, quantity: str, price: str, rate: int = 23, code: str = "") -> Item:
    return Item(description, Decimal(quantity), Decimal(price), rate, code)


def screw(n: int) -> Item:
    price = f"{0.04 + n / 1000:.3f}"
    name = f"Parafuso sextavado M{4 + n % 9} x {10 + n}"
    return item(name, str(50 + 25 * (n % 7)), price, 23 if n % 5 else 6, f"P{n:04d}")


OFFICE = Invoice(
    "Papelaria Simão & Filhos, Lda.",
    "501234567",
    "Café Central do Bolhão, Lda.",
    "FT 2025/117",
    date(2025, 3, 14),
    (
        item("Resma de papel A4 80 g", "10", "4.25"),
        item("Caneta azul (caixa de 50)", "2", "18.90"),
        item("Agenda 2025", "5", "7.50", 6),
    ),
    customer_nif="509876543",
    due=date(2025, 4, 13),
)
STUDIO = Invoice(
    "Estúdio Maré Alta, Unipessoal Lda.",
    "513450982",
    "Câmara Municipal de Avintes",
    "FR A25/9",
    date(2025, 1, 2),
    (
        item("Identidade gráfica: logótipo, cores e letra", "1", "1850.00"),
        item("Ilustração para cartaz", "3", "240.00"),
        item("Impressão (portes incluídos)", "250", "0.385"),
    ),
    customer_nif="506112233",
)
GROCER = Invoice(
    "Mercearia Fina da Ribeira, S.A.",
    "500998877",
    "Maria João Antunes",
    "FS LJ1/40213",
    date(2024, 12, 24),
    (
        item("Queijo da Serra DOP", "0.850", "24.90", 6, "1001"),
        item("Vinho do Porto Tawny 10 anos", "2", "21.50", 13, "2044"),
        item("Cabaz de Natal", "1", "64.99", 23, "9000"),
        item("Livro de receitas <edição nova>", "1", "15.00", 6, "7310"),
        item("Donativo isento (artigo 9.º)", "1", "5.00", 0, "0001"),
    ),
)
REPAIRS = Invoice(
    "Oficina Rápida do Cávado, Lda.",
    "507001122",
    "Transportes Lourenço & Irmão, S.A.",
    "FT OF2025/31",
    date(2025, 6, 30),
    (
        item("Substituição da embreagem, com mão de obra e verificação do volante bimassa", "1", "1249.00"),
        item("Óleo 5W-30 sintético, conforme a norma do fabricante da viatura", "6.5", "9.80"),
        item("Filtro de óleo", "1", "14.20"),
    ),
    customer_nif="502334455",
    due=date(2025, 7, 30),
)
WHOLESALE = Invoice(
    "Armazéns do Norte, S.A.",
    "500100200",
    "Ferragens Pinheiro, Lda.",
    "FT 25/80455",
    date(2025, 9, 1),
    tuple(screw(n) for n in range(1, 181)),
    customer_nif="504221100",
    due=date(2025, 10, 1),
)
HOTEL = Invoice(
    "Hotel Miradouro do Tejo, Lda.",
    "510777888",
    "Viagens Além-Mar, Lda.",
    "FT H/2210",
    date(2025, 8, 17),
    (
        *(item(f"Quarto duplo, noite de {day:02d}/08", "1", "1125.00", 6) for day in range(3, 17)),
        item("Pequeno-almoço", "28", "12.50", 13),
        item("Estacionamento", "14", "8.00"),
    ),
    customer_nif="503998001",
)
